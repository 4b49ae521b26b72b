/* The proof of an import: for each node a line for each message that is stored, counts by exchange, and an
 * end. */
#include "core/base/timestamp.h"
#include "gateway/cli/import/import_internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define ROWS IMPORT_PROOF_ROWS
#define LINE_SIZE 4096
#define MEMORY ((size_t)64 * 1024 * 1024)

static json_t *json_name_of(struct bytes name)
{
    return json_stringn((const char *)name.data, name.len);
}

static int write_object(FILE *file, json_t *object, struct err *e)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    int rc = text == NULL ? err_set(e, ERR_BUG, "out of memory for the proof")
             : fprintf(file, "%s\n", text) < 0
                 ? err_set(e, ERR_LIMIT, "the proof cannot be written: %s", strerror(errno))
                 : 0;
    free(text);
    json_decref(object);
    return rc;
}

static int write_row(const struct import_run *run, FILE *file, const struct import_row *row, struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE], message[MESSAGE_ID_TEXT_SIZE], due[40], hash[2 * SHA256_SIZE + 1];
    for (size_t i = 0; i < SHA256_SIZE; i++)
        snprintf(hash + 2 * i, 3, "%02x", row->hash[i]);
    message_id_format(row->id, id);
    message_id_format(row->message, message);
    timestamp_format(row->due_ms, due, sizeof due);
    return write_object(file,
                        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s}", "import", id, "message", message,
                                  "node", run->node, "due", due, "from", json_name_of(row->source),
                                  "exchange", json_name_of(row->exchange), "sha256", hash),
                        e);
}

static int write_count(const struct import_run *run, FILE *file, const struct import_count *c, struct err *e)
{
    return write_object(file,
                        json_pack("{s:{s:s, s:o, s:I, s:I, s:I, s:I}}", "count", "node", run->node, "from",
                                  json_name_of(c->from), "read", (json_int_t)c->read, "stored",
                                  (json_int_t)c->stored, "refused", (json_int_t)c->refused, "left",
                                  (json_int_t)c->left),
                        e);
}

/* Those of the table are what is stored: of this run, and of earlier ones that came to no end. */
static int write_rows(struct import_run *run, FILE *file, int64_t stored[], struct err *e)
{
    struct import_row *rows = calloc(ROWS, sizeof *rows);
    struct message_id after = {0};
    struct arena a;
    int n = 1, rc = 0;
    if (rows == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    arena_init(&a, MEMORY);
    while (rc == 0 && n > 0) {
        arena_reset(&a);
        n = import_proof(run->cli->pg, bytes_of_str(run->node), after, &a, rows, e);
        rc = n < 0 ? -1 : 0;
        for (int i = 0; rc == 0 && i < n; i++) {
            const struct import_count *c = import_count_of(run, rows[i].source);
            if (c != NULL)
                stored[c - run->counts]++;
            after = rows[i].id;
            rc = file != NULL ? write_row(run, file, &rows[i], e) : 0;
        }
    }
    arena_free(&a);
    free(rows);
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
        err_set(e, ERR_USAGE, "%s cannot be written: %s", path, strerror(errno));
        return NULL;
    }
    if (flock(fileno(file), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        err_set(e, ERR_BUSY, "another import writes to %s: wait for its end, or name another file", path);
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
        err_set(e, ERR_USAGE, "%s is not the proof of an import: name another file", path);
    else if (fseek(file, 0, SEEK_END) == 0 && (ftell(file) <= whole || ftruncate(fileno(file), whole) == 0))
        return file;
    else
        err_set(e, ERR_USAGE, "%s cannot be written: %s", path, strerror(errno));
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
               ? err_set(e, ERR_LIMIT, "the proof cannot be read: %s", strerror(errno))
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
        rc = err_set(e, ERR_LIMIT, "the proof cannot be written: %s", strerror(errno));
    run->proof_failed = file != NULL && rc != 0;
    return rc == 0 && import_forget(run->cli->pg, &run->place, true, NULL, 0, e) < 0 ? -1 : rc;
}

/* --- verify */

/* One line of a message. */
struct claim {
    struct message_id id;
    int64_t due_ms;
};

struct verifying {
    struct cli *cli;
    struct buf claim_list; /* all that the file has, for a message may be in it twice */
    struct claim *claims;  /* it, once it is read */
    size_t claim_count;
    struct import_row rows[ROWS];
    size_t count;
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

static int ask_rows(struct verifying *v, struct err *e)
{
    struct import_standing list[IMPORT_STANDINGS_MAX];
    int n = v->count > 0 ? import_verify(v->cli->pg, v->rows, v->count, list, e) : 0;
    for (int i = 0; i < n; i++)
        add_standing(v, &list[i]);
    v->count = 0;
    return n < 0 ? -1 : 0;
}

static int take_line(struct verifying *v, const char *text, struct err *e)
{
    struct claim claim;
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
        rc = err_set(e, ERR_REJECT, "line %" PRId64 " is none of the proof of an import", v->lines);
    }
    json_decref(object);
    return rc;
}

static int compare_claims(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    return memcmp(&x->id, &y->id, sizeof x->id);
}

/* What the plugin had again, from a copy of its disk, may have come along twice: it is one message. */
static int ask_all(struct verifying *v, struct err *e)
{
    v->claims = (void *)v->claim_list.data;
    v->claim_count = v->claim_list.len / sizeof *v->claims;
    if (v->claim_count > 0)
        qsort(v->claims, v->claim_count, sizeof *v->claims, compare_claims);
    for (size_t i = 0; i < v->claim_count; i++) {
        if (i > 0 && message_id_equal(v->claims[i].id, v->claims[i - 1].id))
            continue;
        v->messages++;
        v->rows[v->count++] = (struct import_row){.message = v->claims[i].id, .due_ms = v->claims[i].due_ms};
        if (v->count == ROWS && ask_rows(v, e) != 0)
            return -1;
    }
    return ask_rows(v, e);
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
        cli_say("the file has no end: the import was interrupted while it was written. Run the import again");
    else if (v->claimed != (int64_t)v->claim_count)
        cli_say("the file counts %" PRId64 " stored messages, and has %zu: it is not whole", v->claimed,
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
        return cli_no_memory();
    if (file == NULL) {
        err_set(&e, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
        free(v);
        return cli_fail(&e);
    }
    v->cli = cli;
    buf_init(&v->claim_list, SIZE_MAX);
    while (rc == 0 && fgets(line, sizeof line, file) != NULL)
        rc = take_line(v, line, &e);
    if (rc == 0)
        rc = ask_all(v, &e);
    int code = rc != 0 ? cli_fail(&e) : print_standings(v);
    fclose(file);
    buf_free(&v->claim_list);
    free(v);
    return code;
}
