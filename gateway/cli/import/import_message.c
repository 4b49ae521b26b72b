/* From what the plugin keeps to what the store keeps. */
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/cli/import/import_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* --- From what the plugin keeps to what the store keeps. */

#define ADDED_MAX 1024
#define KEYS_MAX ((size_t)1024) /* of one message: its routing key, CC and BCC */

const struct import_mapping *import_mapping_of(const struct import_order *o, struct bytes exchange)
{
    for (size_t i = 0; i < o->mapping_count; i++)
        if (bytes_equal(o->mappings[i].from, exchange))
            return &o->mappings[i];
    return NULL;
}

static bool is_in_cc(struct bytes headers, struct bytes key)
{
    struct wire_field cc, item;
    if (!wire_find(headers, "CC", &cc) || cc.kind != 'A')
        return false;
    struct wire_cursor c = wire_array(cc.value);
    while (wire_next(&c, &item) == 1)
        if (bytes_equal(item.value, key))
            return true;
    return false;
}

/* RabbitMQ takes BCC out of the headers when a message comes, and keeps its routing keys. */
static void put_bcc(struct bytes headers, const struct import_entry *m, struct buf *out)
{
    struct buf items;
    buf_init(&items, KEYS_MAX * 300);
    for (size_t i = 1; i < m->key_count; i++)
        if (!is_in_cc(headers, m->keys[i]))
            wire_put_item(&items, 'S', m->keys[i]);
    if (items.len > 0)
        wire_put_field(out, bytes_of_str("BCC"), 'A', buf_bytes(&items));
    out->failed |= items.failed;
    buf_free(&items);
}

/* As what comes to the intake: names of ours mean something else there. */
static bool is_removed(struct bytes name)
{
    return bytes_start_with_str(name, "x-postdate-") || bytes_start_with_str(name, "x-opt-delivery-") ||
           headers_is_of_delivery(name);
}

/* x-delay as the plugin means to write it on delivery: negative, so that no other one delays it again. */
static void put_headers(const struct wire_properties *p, const struct import_entry *m, struct buf *out)
{
    struct wire_cursor c = wire_table(p->headers);
    struct wire_field f;
    int64_t delay;
    bool negated = false;
    while (wire_next(&c, &f) == 1) {
        if (is_removed(f.name))
            continue;
        if (!negated && bytes_equal_str(f.name, HEADER_X_DELAY) && delay_number(&f, &delay) && delay > 0) {
            wire_put_int64(out, f.name, -delay);
            negated = true; /* of duplicates, only the first one counted */
        } else {
            buf_put_bytes(out, f.entry);
        }
    }
    put_bcc(p->headers, m, out);
    if (p->user_id.len > 0) /* RabbitMQ rejects another user's user_id */
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), p->user_id);
}

static int write_properties(const struct import_entry *m, struct arena *a, struct bytes *out, struct err *e)
{
    struct wire_properties p;
    struct buf b;
    if (wire_properties_read(m->properties, &p, e) != 0)
        return -1;
    buf_init(&b, m->properties.len + ADDED_MAX + KEYS_MAX * 300);
    p.flags &= (uint16_t)~WIRE_USER_ID;
    p.flags |= WIRE_HEADERS;
    size_t headers = wire_properties_begin(&p, &b);
    put_headers(&p, m, &b);
    return wire_properties_move(&p, headers, &b, a, out, e);
}

static int check_limits(const struct import_run *run, const struct import_entry *m, int64_t now_ms,
                        struct err *e)
{
    char longest[48];
    if (m->unknown != NULL)
        return err_set(e, ERR_REJECT, "RabbitMQ cannot read it: %s", m->unknown);
    if (m->size > run->rules.max_body)
        return err_set(e, ERR_REJECT, "the body is larger than %zu bytes (intake.max_body)",
                       run->rules.max_body);
    if (m->properties.len > run->rules.max_properties)
        return err_set(e, ERR_REJECT, "the properties and headers are larger than %zu bytes",
                       run->rules.max_properties);
    if (!bytes_is_text(m->exchange))
        return err_set(e, ERR_REJECT, "its exchange name is not text");
    if (m->due_ms - now_ms > run->rules.max_delay_ms)
        return err_set(e, ERR_REJECT, "it is due in more than %s (delivery.max_delay)",
                       duration_format(run->rules.max_delay_ms, longest, sizeof longest));
    return 0;
}

int import_message(const struct import_run *run, const struct import_entry *m, int64_t now_ms,
                   struct arena *a, struct import_row *out, struct err *e)
{
    const struct import_mapping *mapping = import_mapping_of(run->order, m->exchange);
    if (check_limits(run, m, now_ms, e) != 0)
        return -1;
    if (mapping == NULL && !run->order->dry_run)
        return err_set(e, ERR_REJECT, "its exchange has no target: add --exchange OLD=NEW");
    *out = (struct import_row){.id = m->id,
                               .due_ms = m->due_ms,
                               .source = m->exchange,
                               .exchange = mapping != NULL ? mapping->to : m->exchange,
                               .body = bytes_of(m->body.data, m->size)};
    if (m->key_count > KEYS_MAX)
        return err_set(e, ERR_REJECT, "it has more than %zu routing keys in CC and BCC", KEYS_MAX);
    out->routing_key = m->keys[0];
    if (out->routing_key.len > MESSAGE_NAME_MAX || !bytes_is_text(out->routing_key))
        return err_set(e, ERR_REJECT,
                       "its routing key is not text (allowed: at most 255 bytes of UTF-8 without NUL)");
    if (write_properties(m, a, &out->properties, e) != 0)
        return -1;
    const struct message message = {.exchange = out->exchange,
                                    .routing_key = out->routing_key,
                                    .properties = out->properties,
                                    .body = out->body};
    return reserved_check(&message, &run->rules, e);
}

/* --- What was read, stored, refused and left, by exchange. */

#define HOUR_MS INT64_C(3600000)
#define NAME_SHOWN 80

struct import_count *import_count_of(struct import_run *run, struct bytes exchange)
{
    for (size_t i = 0; i < run->count_count; i++)
        if (bytes_equal(run->counts[i].from, exchange))
            return &run->counts[i];
    if (run->count_count == IMPORT_EXCHANGES_MAX || exchange.len > MESSAGE_NAME_MAX)
        return NULL;
    const struct import_mapping *mapping = import_mapping_of(run->order, exchange);
    struct import_count *c = &run->counts[run->count_count++];
    *c = (struct import_count){.mapped = mapping != NULL};
    if (exchange.len > 0)
        memcpy(c->name, exchange.data, exchange.len);
    c->from = bytes_of(c->name, exchange.len);
    if (mapping != NULL)
        c->to = mapping->to;
    return c;
}

void import_count_refusal(struct import_run *run, struct bytes exchange, const char *why)
{
    char text[sizeof run->reasons[0].text], name[NAME_SHOWN];
    struct import_count *c = import_count_of(run, exchange);
    if (c != NULL)
        c->refused++;
    snprintf(text, sizeof text, "%s: %s", bytes_printable(exchange, name, sizeof name), why);
    for (size_t i = 0; i < run->reason_count; i++)
        if (strcmp(run->reasons[i].text, text) == 0) {
            run->reasons[i].count++;
            return;
        }
    if (run->reason_count == IMPORT_REASONS_MAX) {
        run->other_reasons++;
        return;
    }
    struct import_reason *r = &run->reasons[run->reason_count++];
    memcpy(r->text, text, sizeof r->text);
    r->count = 1;
}

int import_count_survey(struct import_run *run, const struct import_answer *a, struct err *e)
{
    run->total = 0;
    for (size_t i = 0; i < a->survey_count; i++) {
        const struct import_survey *s = &a->surveys[i];
        struct import_count *c = import_count_of(run, s->exchange);
        if (c == NULL)
            return err_set(e, ERR_REJECT, "more than %d exchanges of vhost \"%s\" have waiting messages",
                           IMPORT_EXCHANGES_MAX, run->vhost);
        c->waiting += s->count;
        c->soon += s->soon ? s->count : 0;
        run->total += s->soon ? 0 : s->count;
    }
    return 0;
}

static int compare_surveys(const void *va, const void *vb)
{
    const struct import_survey *a = va, *b = vb;
    if (a->hour != b->hour)
        return a->hour < b->hour ? -1 : 1;
    size_t least = a->exchange.len < b->exchange.len ? a->exchange.len : b->exchange.len;
    int d = least > 0 ? memcmp(a->exchange.data, b->exchange.data, least) : 0;
    return d != 0 ? d : (a->exchange.len > b->exchange.len) - (a->exchange.len < b->exchange.len);
}

void import_count_print_hours(const struct import_run *run, const struct import_answer *a)
{
    char when[40], name[NAME_SHOWN];
    if (a->survey_count > 0)
        qsort(a->surveys, a->survey_count, sizeof *a->surveys, compare_surveys);
    if (run->total > 0)
        printf("\n%-18s %10s  %s\n", "HOUR (UTC)", "MESSAGES", "EXCHANGE");
    for (size_t i = 0; i < a->survey_count && cli_output_error() == 0; i++) {
        const struct import_survey *s = &a->surveys[i];
        if (s->soon)
            continue;
        timestamp_format(s->hour * HOUR_MS, when, sizeof when);
        printf("%.13s:00      %10" PRId64 "  %s\n", when, s->count,
               bytes_printable(s->exchange, name, sizeof name));
    }
}

void import_count_print(const struct import_run *run)
{
    char from[NAME_SHOWN], to[NAME_SHOWN];
    int64_t soon = 0;
    printf("%-24s %-24s %9s %9s %9s %9s\n", "EXCHANGE", "TO", "READ", run->order->dry_run ? "GOOD" : "STORED",
           "REJECTED", "LEFT");
    for (size_t i = 0; i < run->count_count; i++) {
        const struct import_count *c = &run->counts[i];
        soon += c->soon;
        printf("%-24s %-24s %9" PRId64 " %9" PRId64 " %9" PRId64 " %9" PRId64 "\n",
               bytes_printable(c->from, from, sizeof from),
               c->mapped ? bytes_printable(c->to, to, sizeof to) : "(no --exchange)", c->read, c->stored,
               c->refused, c->left);
    }
    if (soon > 0)
        printf("%" PRId64 " more are due within %s, and stay with the plugin\n", soon,
               duration_format(run->order->margin_ms, from, sizeof from));
}

void import_count_print_reasons(const struct import_run *run)
{
    for (size_t i = 0; i < run->reason_count; i++)
        cli_say("not imported: %" PRId64 " of %s", run->reasons[i].count, run->reasons[i].text);
    if (run->other_reasons > 0)
        cli_say("not imported: %" PRId64 " more, for other reasons", run->other_reasons);
}

/* --- The proof of an import: for each node a line for each message that is stored, counts by exchange, and
 * an end. */

#define ROWS IMPORT_PROOF_ROWS
#define LINE_SIZE 4096
#define MEMORY ((size_t)64 * 1024 * 1024)

static int write_line(FILE *file, struct bytes text, struct err *e)
{
    return fwrite(text.data, 1, text.len, file) == text.len && putc('\n', file) != EOF
               ? 0
               : err_set(e, ERR_LIMIT, "cannot write the proof: %s", strerror(errno));
}

static int write_object(FILE *file, json_t *object, struct err *e)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    int rc = text == NULL ? err_set(e, ERR_BUG, "out of memory for the proof")
                          : write_line(file, bytes_of_str(text), e);
    free(text);
    json_decref(object);
    return rc;
}

static int write_count(const struct import_run *run, FILE *file, const struct import_count *c, struct err *e)
{
    char from[256]; /* a name may be any bytes, JSON may not */
    snprintf(from, sizeof from, "%.*s", (int)c->from.len, (const char *)c->from.data);
    bytes_clean_text(from);
    return write_object(file,
                        json_pack("{s:{s:s, s:s, s:I, s:I, s:I, s:I}}", "count", "node", run->node, "from",
                                  from, "read", (json_int_t)c->read, "stored", (json_int_t)c->stored,
                                  "refused", (json_int_t)c->refused, "left", (json_int_t)c->left),
                        e);
}

/* Those of the table are what is stored: of this run, and of earlier ones that came to no end. */
static int write_rows(struct import_run *run, FILE *file, int64_t stored[], struct err *e)
{
    struct import_proof_line *lines;
    struct message_id after = {0};
    struct arena a;
    int n = 1, rc = 0;
    arena_init(&a, MEMORY);
    while (rc == 0 && n > 0) {
        arena_reset(&a);
        n = import_proof(run->cli->pg, bytes_of_str(run->node), after, &a, &lines, e);
        rc = n < 0 ? -1 : 0;
        for (int i = 0; rc == 0 && i < n; i++) {
            const struct import_count *c = import_count_of(run, lines[i].source);
            if (c != NULL)
                stored[c - run->counts]++;
            after = lines[i].id;
            rc = file != NULL ? write_line(file, lines[i].text, e) : 0;
        }
    }
    arena_free(&a);
    return rc;
}

/* What an earlier run has stored it has read, too. */
static int compare_counts(struct import_run *run, const int64_t stored[], struct err *e)
{
    for (size_t i = 0; i < run->count_count; i++) {
        struct import_count *c = &run->counts[i];
        if (c->read != c->stored + c->refused + c->left || stored[i] < c->stored)
            return err_set(e, ERR_BUG,
                           "the counts of node %s do not agree: %" PRId64 " read, %" PRId64
                           " stored (in the database: %" PRId64 "), %" PRId64 " refused, %" PRId64 " left",
                           run->node, c->read, c->stored, stored[i], c->refused, c->left);
        c->read += stored[i] - c->stored;
        c->stored = stored[i];
    }
    return 0;
}

/* Or the line was cut off before that can be said. */
static bool begins(const char *line, const char *name)
{
    char start[32];
    size_t len = strlen(line);
    snprintf(start, sizeof start, "{\"%s\":", name);
    return strncmp(line, start, len < strlen(start) && strchr(line, '\n') == NULL ? len : strlen(start)) == 0;
}

FILE *import_proof_open(const char *path, struct err *e)
{
    char line[LINE_SIZE];
    FILE *file = fopen(path, "a+e");
    long whole = 0;
    bool known = true;
    if (file == NULL) {
        err_set(e, ERR_USAGE, "cannot write %s: %s", path, strerror(errno));
        return NULL;
    }
    if (flock(fileno(file), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        err_set(e, ERR_BUSY, "another import is writing to %s: wait until it ends, or use another file",
                path);
        fclose(file);
        return NULL;
    }
    rewind(file);
    while (known && fgets(line, sizeof line, file) != NULL) {
        known = whole > 0 || begins(line, "import") || begins(line, "count") || begins(line, "end");
        if (begins(line, "end") && strchr(line, '\n') != NULL)
            whole = ftell(file);
    }
    if (!known)
        err_set(e, ERR_USAGE, "%s is not the proof of an import: use another file", path);
    else if (fseek(file, 0, SEEK_END) == 0 && (ftell(file) <= whole || ftruncate(fileno(file), whole) == 0))
        return file;
    else
        err_set(e, ERR_USAGE, "cannot write %s: %s", path, strerror(errno));
    fclose(file);
    return NULL;
}

/* Is it a line of a message of this node? */
static bool read_entry(const struct import_run *run, const char *line, struct message_id *out)
{
    json_t *object = json_loads(line, 0, NULL);
    const char *id = json_string_value(json_object_get(object, "import")),
               *node = json_string_value(json_object_get(object, "node"));
    bool is_one =
        id != NULL && node != NULL && strcmp(node, run->node) == 0 && message_id_parse(bytes_of_str(id), out);
    json_decref(object);
    return is_one;
}

int import_proof_settle(struct import_run *run, FILE *file, struct err *e)
{
    char line[LINE_SIZE];
    struct message_id ids[ROWS];
    int any = file != NULL ? import_has_proof(run->cli->pg, run->place.node, e) : 0;
    size_t count = 0;
    bool more = any > 0;
    if (any <= 0)
        return any;
    rewind(file);
    while (more) {
        more = fgets(line, sizeof line, file) != NULL;
        count += more && read_entry(run, line, &ids[count]);
        if (count < ROWS && more)
            continue;
        if (import_forget(run->cli->pg, &run->place, true, ids, count, e) < 0)
            return -1;
        count = 0;
    }
    return ferror(file) || fseek(file, 0, SEEK_END) != 0
               ? err_set(e, ERR_LIMIT, "cannot read the proof: %s", strerror(errno))
               : 0;
}

int import_proof_write(struct import_run *run, FILE *file, struct err *e)
{
    int64_t stored[IMPORT_EXCHANGES_MAX] = {0};
    int rc = write_rows(run, file, stored, e);
    if (rc == 0)
        rc = compare_counts(run, stored, e);
    for (size_t i = 0; rc == 0 && file != NULL && i < run->count_count; i++)
        rc = write_count(run, file, &run->counts[i], e);
    if (rc == 0 && file != NULL)
        rc = write_object(file, json_pack("{s:s}", "end", run->node), e);
    if (rc == 0 && file != NULL && (fflush(file) != 0 || (fsync(fileno(file)) != 0 && errno != EINVAL)))
        rc = err_set(e, ERR_LIMIT, "cannot write the proof: %s", strerror(errno));
    run->proof_failed = file != NULL && rc != 0;
    return rc == 0 && import_forget(run->cli->pg, &run->place, true, NULL, 0, e) < 0 ? -1 : rc;
}

/* --- verify */

struct verifying {
    struct cli *cli;
    struct buf claim_list;     /* all that the file has, for a message may be in it twice */
    size_t claim_count;        /* it, once it is read */
    int64_t lines, ended;      /* ended: the last line that says so */
    int64_t messages, claimed; /* messages: each once; claimed: stored, as the counts of the file say */
    struct import_standing totals[IMPORT_STANDINGS_MAX];
    size_t total_count;
};

static void add_standing(struct verifying *v, const struct import_standing *s)
{
    for (size_t i = 0; i < v->total_count; i++)
        if (strcmp(v->totals[i].state, s->state) == 0 && v->totals[i].moved == s->moved) {
            v->totals[i].count += s->count;
            return;
        }
    if (v->total_count < IMPORT_STANDINGS_MAX)
        v->totals[v->total_count++] = *s;
}

static int take_line(struct verifying *v, const char *text, struct err *e)
{
    struct import_claim claim;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *count = json_object_get(object, "count");
    const char *message = json_string_value(json_object_get(object, "message")),
               *due = json_string_value(json_object_get(object, "due"));
    int rc = 0;
    v->lines++;
    if (json_is_string(json_object_get(object, "end"))) {
        v->ended = v->lines;
    } else if (json_is_integer(json_object_get(count, "stored"))) {
        v->claimed += json_integer_value(json_object_get(count, "stored"));
    } else if (message != NULL && due != NULL && message_id_parse(bytes_of_str(message), &claim.id) &&
               timestamp_parse(due, &claim.due_ms, e) == 0) {
        buf_put(&v->claim_list, &claim, sizeof claim);
        if (v->claim_list.failed)
            rc = err_set(e, ERR_BUG, "out of memory for %zu bytes of the proof", v->claim_list.len);
    } else {
        rc = err_set(e, ERR_REJECT, "line %" PRId64 " does not belong to the proof of an import", v->lines);
    }
    json_decref(object);
    return rc;
}

static int compare_claims(const void *a, const void *b)
{
    const struct import_claim *x = a, *y = b;
    return memcmp(&x->id, &y->id, sizeof x->id);
}

/* What the plugin had again, from a copy of its disk, may have come along twice: it is one message. */
static int ask_all(struct verifying *v, struct err *e)
{
    struct import_claim *claims = (void *)v->claim_list.data;
    struct import_standing list[IMPORT_STANDINGS_MAX];
    size_t once = 0;
    v->claim_count = v->claim_list.len / sizeof *claims;
    if (v->claim_count > 0)
        qsort(claims, v->claim_count, sizeof *claims, compare_claims);
    for (size_t i = 0; i < v->claim_count; i++)
        if (i == 0 || !message_id_equal(claims[i].id, claims[once - 1].id))
            claims[once++] = claims[i];
    v->messages = (int64_t)once;
    for (size_t i = 0; i < once; i += ROWS) {
        int n = import_verify(v->cli->pg, claims + i, once - i < ROWS ? once - i : ROWS, list, e);
        for (int k = 0; k < n; k++)
            add_standing(v, &list[k]);
        if (n < 0)
            return -1;
    }
    return 0;
}

static int print_standings(const struct verifying *v)
{
    int64_t missing = 0;
    printf("%-12s %10" PRId64 "\n", "in the file", v->messages);
    for (size_t i = 0; i < v->total_count; i++) {
        const struct import_standing *s = &v->totals[i];
        printf("%-12s %10" PRId64 "%s\n", s->state, s->count, s->moved ? "  at another time" : "");
        missing += strcmp(s->state, "missing") == 0 || (s->moved && strcmp(s->state, "superseded") != 0)
                       ? s->count
                       : 0;
    }
    if (v->ended != v->lines)
        cli_say("the file is incomplete: the import was interrupted. Run the import again");
    else if (v->claimed != (int64_t)v->claim_count)
        cli_say("the file is incomplete: it counts %" PRId64 " stored messages, and contains %zu", v->claimed,
                v->claim_count);
    if (missing > 0)
        cli_say("%" PRId64 " messages are missing, or due at another time", missing);
    return missing > 0 || v->ended != v->lines || v->claimed != (int64_t)v->claim_count;
}

int import_proof_verify(struct cli *cli, const char *path)
{
    char line[LINE_SIZE];
    struct err e;
    struct verifying *v = calloc(1, sizeof *v);
    FILE *file = v != NULL ? fopen(path, "re") : NULL;
    int rc = 0;
    if (v == NULL)
        return cli_no_memory(cli);
    if (file == NULL) {
        err_set(&e, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
        free(v);
        return cli_fail(cli, &e);
    }
    v->cli = cli;
    buf_init(&v->claim_list, SIZE_MAX);
    while (rc == 0 && fgets(line, sizeof line, file) != NULL)
        rc = take_line(v, line, &e);
    if (rc == 0)
        rc = ask_all(v, &e);
    int code = rc != 0 ? cli_fail(cli, &e) : print_standings(v);
    fclose(file);
    buf_free(&v->claim_list);
    free(v);
    return code;
}
