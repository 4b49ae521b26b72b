/* `postdate schedule --batch`: NDJSON in chunks, each one transaction. While one is stored, the next is read
 * and parsed. If the writer pauses, the lines read so far are stored at once.
 *
 * A chunk is reported as stored only after its commit. However the run ends, the last message names the line
 * up to which every message is stored or was reported as rejected. */
#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/fields.h"
#include "gateway/cli/progress.h"
#include "gateway/cli/schedule/line_reader.h"
#include "gateway/json/json_message.h"
#include "sql/admin/settings.h"
#include "sql/pipeline/store.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A sleeping gateway may not expect a message that is due sooner than this. */
#define SCHEDULE_WAKE_MS 1500

#define CHUNK_LINES 5000
#define CHUNK_BYTES ((size_t)4 * 1024 * 1024)
#define CHUNK_MEMORY (CHUNK_BYTES + 2 * JSON_MESSAGE_MAX) /* the last line may be a long one */
#define ERRORS_SHOWN 10
#define BATCH_PATIENCE 6 /* waits of 0.1 s, 0.2 s … 3.2 s */

/* A chunk: stored in one transaction, by its own thread, while the next one is read. */
struct chunk {
    struct arena arena;
    struct store_item *items; /* CHUNK_LINES of each */
    int64_t *lines;           /* the line each item came from */
    const char **refusals;    /* why PostgreSQL rejected it, or NULL */
    size_t count;
    int64_t last_line, bytes; /* of the input, with this chunk */
    bool wake;                /* something is due soon */

    size_t done;   /* so many of the first ones are stored, or refused */
    bool in_doubt; /* the connection died under the next ones: neither known to be stored nor not */
    int result;
    struct err e; /* result is not 0 */
    struct cli *cli;
    pthread_t thread;
    bool has_thread;
};

struct batch {
    struct cli *cli;
    struct pg *clock; /* the other connection stores */
    struct line_reader reader;
    struct json_parser parser;
    struct progress progress;
    struct chunk chunks[2];
    struct chunk *reading, *storing; /* storing: NULL when nothing is */
    int64_t done_line;               /* everything up to here is stored or refused */
    int64_t doubt_line;              /* what follows up to here may be stored or not; 0: nothing */
    int64_t accepted, kept, refused;
};

struct wanted {
    struct cli_fields f; /* the message object, as the batch form would have it */
    struct bytes body;
    const char *batch;
};

/* As in the batch form, but errors are printed at once. */
static int take_time(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t ms;
    char shown[40];
    int code = cli_parse_time(cli, o->name, text, &ms);
    return code != 0 ? code : cli_take_field(cli, o, at, timestamp_format(ms, shown, sizeof shown));
}

static int take_delay(struct cli *cli, const struct cli_option *o, void *at, const char *text)
{
    int64_t ms;
    int code = cli_take_duration(cli, o, &ms, text);
    return code != 0 ? code : cli_take_field(cli, o, at, text);
}

static const struct cli_option schedule_options[] = {
    {"routing-key", "K", "routing key for the delivery", CLI_TAKE(field, wanted, f.object), .letter = 'k'},
    {"delay", "D", "due after this delay: 250ms, 90s, 15m, 36h, 30d, PT15M", take_delay,
     .offset = offsetof(struct wanted, f.object)},
    {"at", "T", "due at this time: 2026-11-22T08:00:00Z, +2h, 09:00, 'tomorrow 09:00'", take_time,
     .offset = offsetof(struct wanted, f.object), .field = "due_at"},
    {"deadline", "T", "not delivered after this time: then it is expired", take_time,
     .offset = offsetof(struct wanted, f.object)},
    {"spread", "D", "add a random delay of up to this to the due time: 10m", take_delay,
     .offset = offsetof(struct wanted, f.object)},
    {"exchange", "E", "delivery exchange (default: delivery.exchange)", CLI_TAKE(field, wanted, f.object)},
    {"key", "KEY", "your own name for the message, to cancel or replace it",
     CLI_TAKE(field, wanted, f.object)},
    {"on-conflict", "X", "when the key is taken: keep (default), replace, reject",
     CLI_TAKE(field, wanted, f.object), .words = "keep replace reject"},
    {"hold", "X", "where it is held until due: gateway, broker (default: by handover.what)",
     CLI_TAKE(field, wanted, f.object), .words = "gateway broker"},
    {.more = cli_content_options},
    {"batch", "F",
     "one JSON object per line: {\"routing_key\":\"k\",\"delay\":\"15m\",\"body\":\"…\"};" CLI_HELP_LINE
     "- for stdin. Other options don't apply",
     CLI_TAKE(text, wanted, batch), .words = CLI_FILE},
    {0},
};

/* --- storing, as for one message */
static int store_patiently(struct cli *cli, struct store_item *items, size_t count, struct err *e)
{
    const struct store_options options = {.key_memory_ms = cli->config.keys.key_memory_ms};
    int result = -1;
    for (int i = 0; i <= BATCH_PATIENCE; i++) {
        result = store_accept(cli->pg, &options, items, count, e);
        if (result == 0 || e->kind != ERR_BUSY || pg_is_broken(cli->pg))
            break;
        if (i < BATCH_PATIENCE)
            clock_nap_ms(100L << i);
    }
    return result;
}

/* Stores items that are in doubt of nothing: waits out busy servers and held keys for a while. As
 * store_accept. */
static int schedule_store(struct cli *cli, struct store_item *items, size_t count, struct err *e)
{
    if (store_patiently(cli, items, count, e) != 0)
        return -1;
    /* Somebody's open transaction holds the key: their commit or rollback decides, and mostly comes soon. */
    int patience = BATCH_PATIENCE; /* for all of them together */
    for (size_t i = 0; i < count; i++) {
        while (items[i].result == STORE_WAITS && patience > 0) {
            clock_nap_ms(100L << (BATCH_PATIENCE - patience--));
            if (store_patiently(cli, &items[i], 1, e) != 0)
                return -1;
        }
    }
    return 0;
}

/* The rules of the configuration, with the policy of RabbitMQ's hold that a gateway recorded. The database is
 * open; errors are printed. 0 or the exit code. */
static int schedule_rules(struct cli *cli, struct accept_rules *out)
{
    struct err e;
    *out = config_accept_rules(&cli->config);
    return settings_hold_policy(cli->pg, &out->hold, &e) == 0 ? 0 : cli_fail(cli, &e);
}

/* "line 7: key "a" already names message …" and the like; why an item was not stored. */
static const char *schedule_refusal(const struct store_item *item, char *out, size_t size)
{
    char key[300], id[MESSAGE_ID_TEXT_SIZE];
    bytes_printable(item->message.key, key, sizeof key);
    if (item->day_locked)
        snprintf(out, size,
                 "another session has locked the table of the day on which it is due: try again later "
                 "(postdate doctor names the session)");
    else if (item->result == STORE_WAITS)
        snprintf(out, size,
                 "key \"%s\" is held by another session's open transaction: try again when it has ended",
                 key);
    else if (item->message.on_conflict == ON_CONFLICT_REPLACE)
        snprintf(out, size,
                 "key \"%s\" names message %s, which can no longer be replaced (it is being delivered)", key,
                 message_id_format(item->existing_id, id));
    else
        snprintf(out, size, "key \"%s\" already names message %s", key,
                 message_id_format(item->existing_id, id));
    return out;
}

/* --- chunks */

/* memory: how much the lines may take, parsed. -1: out of memory; chunk_free also then. */
static int chunk_init(struct chunk *c, struct cli *cli, size_t memory)
{
    *c = (struct chunk){.cli = cli};
    arena_init(&c->arena, memory);
    c->items = calloc(CHUNK_LINES, sizeof *c->items);
    c->lines = calloc(CHUNK_LINES, sizeof *c->lines);
    c->refusals = calloc(CHUNK_LINES, sizeof *c->refusals);
    return c->items && c->lines && c->refusals ? 0 : -1;
}

static void chunk_free(struct chunk *c)
{
    arena_free(&c->arena);
    free(c->items);
    free(c->lines);
    free(c->refusals);
}

static void chunk_reset(struct chunk *c)
{
    arena_reset(&c->arena);
    c->count = c->done = 0;
    c->wake = c->in_doubt = false;
}

static const char *keep_text(struct chunk *c, const char *text)
{
    size_t size = strlen(text) + 1;
    char *kept = arena_alloc(&c->arena, size);
    return kept ? memcpy(kept, text, size) : "PostgreSQL rejected it";
}

/* If PostgreSQL rejects something in a chunk, halving finds it: everything else is stored. */
static int store_range(struct chunk *c, size_t first, size_t count)
{
    memset(c->refusals + first, 0, count * sizeof *c->refusals);
    if (schedule_store(c->cli, c->items + first, count, &c->e) == 0) {
        c->done = first + count;
        return 0;
    }
    if (c->e.kind != ERR_REJECT)
        return -1;
    if (count == 1) {
        c->refusals[first] = keep_text(c, c->e.text);
        c->done = first + 1;
        return 0;
    }
    if (store_range(c, first, count / 2) != 0)
        return -1;
    return store_range(c, first + count / 2, count - count / 2);
}

static void *store_thread(void *arg)
{
    struct chunk *c = arg;
    c->result = c->count > 0 ? store_range(c, 0, c->count) : 0;
    c->in_doubt = c->result != 0 && (c->e.kind == ERR_AWAY || pg_is_broken(c->cli->pg));
    if (c->result == 0 && c->wake)
        store_wake(c->cli->pg);
    return NULL;
}

/* Until chunk_wait, no other thread uses c or the command's connection. The thread gets no signals. */
static void chunk_store(struct chunk *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->has_thread = pthread_create(&c->thread, NULL, store_thread, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->has_thread)
        store_thread(c);
}

/* 0; -1 and c->e. Items up to c->done have a result either way. */
static int chunk_wait(struct chunk *c)
{
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    c->has_thread = false;
    return c->result;
}

static volatile int
    interrupted; /* int, not sig_atomic_t, which is the same here: line_reader takes a pointer */

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static void refuse_line(struct batch *b, int64_t line, const char *why)
{
    b->refused++;
    if (b->refused > ERRORS_SHOWN)
        return;
    progress_clear(&b->progress);
    cli_say("line %lld: %s", (long long)line, why);
}

static bool is_blank(struct bytes line)
{
    for (size_t i = 0; i < line.len; i++) {
        if (strchr(" \t\r", line.data[i]) == NULL || line.data[i] == '\0')
            return false;
    }
    return true;
}

static void take_line(struct batch *b, struct bytes line)
{
    struct chunk *c = b->reading;
    struct store_item *item = &c->items[c->count];
    struct err e;
    if (is_blank(line))
        return;
    *item = (struct store_item){0};
    if (json_message_parse(&b->parser, line, &c->arena, &item->message, &e) != 0) {
        refuse_line(b, b->reader.lines, e.text);
        return;
    }
    item->message.id = message_id_new(item->message.due_ms);
    c->wake = c->wake || item->message.due_ms <= b->parser.now_ms + SCHEDULE_WAKE_MS;
    c->lines[c->count++] = b->reader.lines;
}

/* Reads up to a chunk's worth, less when the writer pauses. LINE_OK: more may follow; LINE_WAIT: when the
 * writer goes on. */
static enum line_result read_chunk(struct batch *b, struct err *e)
{
    int64_t start = line_reader_position(&b->reader);
    enum line_result result = LINE_OK;
    struct bytes line;
    char text[80];
    chunk_reset(b->reading);
    while (result == LINE_OK && b->reading->count < CHUNK_LINES &&
           line_reader_position(&b->reader) - start < (int64_t)CHUNK_BYTES && !interrupted) {
        result = line_reader_next(&b->reader, &interrupted, &line, e);
        if (result == LINE_OK) {
            take_line(b, line);
        } else if (result == LINE_TOO_LONG) {
            snprintf(text, sizeof text, "longer than %zu MiB, which is not allowed", JSON_MESSAGE_MAX >> 20);
            refuse_line(b, b->reader.lines, text);
            result = LINE_OK;
        }
    }
    b->reading->last_line = b->reader.lines;
    b->reading->bytes = line_reader_position(&b->reader);
    return interrupted ? LINE_STOPPED : result;
}

static void count_results(struct batch *b, const struct chunk *c)
{
    char text[480];
    for (size_t i = 0; i < c->done; i++) {
        const struct store_item *item = &c->items[i];
        if (c->refusals[i])
            refuse_line(b, c->lines[i], c->refusals[i]);
        else if (item->result == STORE_ACCEPTED || item->result == STORE_REPLACED)
            b->accepted++;
        else if (item->result == STORE_KEPT || item->result == STORE_DUPLICATE)
            b->kept++;
        else
            refuse_line(b, c->lines[i], schedule_refusal(item, text, sizeof text));
    }
}

/* Waits for the chunk that is being stored, if there is one. */
static int finish_storing(struct batch *b, struct err *e)
{
    struct chunk *c = b->storing;
    if (c == NULL)
        return 0;
    b->storing = NULL;
    int rc = chunk_wait(c);
    count_results(b, c);
    if (c->done == c->count)
        b->done_line = c->last_line;
    else if (c->done > 0)
        b->done_line = c->lines[c->done - 1];
    if (c->in_doubt)
        b->doubt_line = c->last_line;
    if (rc != 0)
        *e = c->e;
    else
        progress_update(&b->progress, c->bytes, c->last_line);
    return rc;
}

/* After waiting for a line. Delays are counted again when they are stored (store_accept). */
static int ask_clock(struct batch *b, struct err *e)
{
    int64_t now_us;
    if (store_clock(b->clock, &now_us, e) != 0)
        return -1;
    b->parser.now_ms = now_us / 1000;
    return 0;
}

/* Reads and stores until the input ends, and leaves the last chunk being stored. */
static int run_chunks(struct batch *b, struct err *e)
{
    enum line_result result = LINE_OK;
    struct err store_error;
    do {
        if (result == LINE_WAIT && finish_storing(b, e) != 0)
            return -1;
        result = line_reader_wait(&b->reader, &interrupted, e);
        if (result != LINE_OK)
            break;
        if (ask_clock(b, e) != 0)
            return -1;
        result = read_chunk(b, e);
        if (finish_storing(b, &store_error) != 0) {
            *e = store_error;
            return -1;
        }
        b->storing = b->reading;
        b->reading = b->reading == &b->chunks[0] ? &b->chunks[1] : &b->chunks[0];
        chunk_store(b->storing); /* also after a read error or a signal: the lines read before */
    } while (result == LINE_OK || result == LINE_WAIT);
    if (result == LINE_STOPPED)
        return err_set(e, ERR_STOPPING, "interrupted");
    return result == LINE_FAILED ? -1 : 0;
}

static int print_summary(struct batch *b, int result, const struct err *e)
{
    progress_clear(&b->progress);
    if (b->refused > ERRORS_SHOWN)
        fprintf(stderr, "postdate: … and %lld more errors\n", (long long)(b->refused - ERRORS_SHOWN));
    if (result != 0) {
        cli_say("%s", e->text);
        fprintf(stderr, "postdate: every line up to line %lld is stored or was rejected",
                (long long)b->done_line);
        if (b->doubt_line)
            fprintf(stderr, "; lines %lld to %lld may or may not be stored", (long long)b->done_line + 1,
                    (long long)b->doubt_line);
        fputs("; later lines are not\n", stderr);
    }
    double seconds = progress_seconds(&b->progress);
    int64_t lines = b->accepted + b->kept + b->refused;
    fprintf(stderr, "accepted %lld, kept %lld, rejected %lld in %.1f s (%.0f/s)\n", (long long)b->accepted,
            (long long)b->kept, (long long)b->refused, seconds, seconds > 0 ? (double)lines / seconds : 0);
    if (result != 0)
        return err_exit_code(e);
    if (b->refused == 0)
        return 0;
    return b->accepted + b->kept == 0 ? 65 : 1;
}

static int64_t file_size(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? (int64_t)s.st_size : 0;
}

static int open_batch(struct batch *b, struct err *e)
{
    if (chunk_init(&b->chunks[0], b->cli, CHUNK_MEMORY) != 0 ||
        chunk_init(&b->chunks[1], b->cli, CHUNK_MEMORY) != 0)
        return err_set(e, ERR_BUG, "out of memory");
    b->reading = &b->chunks[0];
    b->clock = cli_connect(b->cli->config.postgres.url, "postdate clock", 0, e);
    return b->clock ? 0 : -1;
}

static int run_batch(struct cli *cli, int fd)
{
    struct accept_rules rules;
    struct batch b = {.cli = cli};
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: read(2) must return */
    struct err e, store_error;
    int refused = schedule_rules(cli, &rules);
    if (refused != 0)
        return refused;
    line_reader_init(&b.reader, fd, JSON_MESSAGE_MAX);
    json_parser_init(&b.parser, &rules);
    progress_start(&b.progress, file_size(fd));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    err_clear(&e);
    int result = open_batch(&b, &e) != 0 ? -1 : run_chunks(&b, &e);
    if (finish_storing(&b, &store_error) != 0) {
        e = store_error;
        result = -1;
    }
    int code = print_summary(&b, result, &e);
    chunk_free(&b.chunks[0]);
    chunk_free(&b.chunks[1]);
    pg_close(b.clock);
    json_parser_free(&b.parser);
    line_reader_free(&b.reader);
    return code;
}

/* Reads path ("-": stdin); the exit code. */
static int schedule_batch(struct cli *cli, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_cannot_read(cli, path);
    int code = run_batch(cli, fd);
    if (!is_stdin)
        close(fd);
    return code;
}

#define PAST_MS 1000 /* a longer delay is not the network's, and is reported */
#define PATIENCE 6   /* waits of 0.1 s, 0.2 s … 3.2 s */

static int check_options(const struct cli *cli, const struct wanted *w)
{
    if (w->batch != NULL) {
        if (json_object_size(w->f.object) + json_object_size(w->f.headers) +
                    json_object_size(w->f.properties) >
                0 ||
            w->f.body != NULL || w->f.file != NULL)
            return cli_usage(cli, "--batch reads everything from the file: leave out the other options");
        return 0;
    }
    bool delay = json_object_get(w->f.object, "delay") != NULL,
         at = json_object_get(w->f.object, "due_at") != NULL;
    if (json_object_get(w->f.object, "routing_key") == NULL)
        return cli_usage(cli, "-k ROUTING_KEY is missing");
    if (delay == at)
        return cli_usage(cli, "give either --delay or --at");
    if (w->f.body != NULL && w->f.file != NULL)
        return cli_usage(cli, "give only one of --body and --file");
    if (w->f.body == NULL && w->f.file == NULL)
        return cli_usage(cli, "the body is missing: give --body TEXT, --file FILE or - for stdin");
    return 0;
}

static int report_result(const struct store_item *item)
{
    char id[MESSAGE_ID_TEXT_SIZE], text[480], key[300];
    switch (item->result) {
    case STORE_ACCEPTED:
    case STORE_REPLACED:
        puts(message_id_format(item->message.id, id));
        return 0;
    case STORE_KEPT:
    case STORE_DUPLICATE:
        puts(message_id_format(item->existing_id, id));
        cli_say("key \"%s\" already names this message, which was kept (--on-conflict replace changes it)",
                bytes_printable(item->message.key, key, sizeof key));
        return 0;
    case STORE_CONFLICT:
    case STORE_SKIPPED:
    case STORE_WAITS:
        break;
    }
    cli_say("not scheduled: %s", schedule_refusal(item, text, sizeof text));
    return item->result == STORE_WAITS ? 75 : 1;
}

static int store_message(struct cli *cli, struct store_item *item)
{
    struct err e;
    bool soon = item->message.due_ms <= cli->now_ms + SCHEDULE_WAKE_MS;
    item->message.id = message_id_new(item->message.due_ms);
    if (schedule_store(cli, item, 1, &e) != 0)
        return cli_fail(cli, &e);
    if (item->result == STORE_ACCEPTED && soon)
        store_wake(cli->pg);
    return report_result(item);
}

/* Somebody's clock or calendar may be wrong. */
static void warn_of_past(const struct wanted *w, int64_t due_ms, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE];
    if (json_object_get(w->f.object, "due_at") != NULL && due_ms < now_ms - PAST_MS)
        cli_say("--at is %s: the message is delivered at once", cli_format_when(due_ms, now_ms, when));
}

static int schedule_one(struct cli *cli, const struct wanted *w)
{
    struct accept_rules rules;
    struct store_item item = {0};
    struct json_parser parser;
    struct err e;
    int code = schedule_rules(cli, &rules);
    if (code != 0)
        return code;
    cli_fields_join(&w->f);
    char *text = json_dumps(w->f.object, JSON_COMPACT);
    if (text == NULL)
        return cli_no_memory(cli);
    json_parser_init(&parser, &rules);
    parser.outside_body = w->body;
    parser.now_ms = cli->now_ms;
    if (json_message_parse(&parser, bytes_of_str(text), &cli->arena, &item.message, &e) != 0) {
        code = cli_fail(cli, &e);
    } else {
        warn_of_past(w, item.message.due_ms, cli->now_ms);
        code = store_message(cli, &item);
    }
    json_parser_free(&parser);
    free(text);
    return code;
}

static int check(struct cli *cli, void *order)
{
    struct wanted *w = order;
    /* A lone "-" is the body from stdin. */
    bool stdin_body = cli->word_count > 0 && strcmp(cli->words[0], "-") == 0 && w->f.file == NULL;
    if (stdin_body)
        w->f.file = "-";
    if (cli->word_count > stdin_body)
        return cli_usage(cli, "unexpected argument \"%s\"", cli->words[stdin_body]);
    int code = check_options(cli, w);
    if (code == 0)
        code = cli_load_config(cli);
    if (code == 0 && w->f.file != NULL)
        code = cli_read_body(cli, w->f.file, (size_t)cli->config.intake.max_body, &cli->arena, &w->body);
    else if (w->f.body != NULL)
        w->body = bytes_of_str(w->f.body);
    return code;
}

static int run_schedule(struct cli *cli, void *order)
{
    const struct wanted *w = order;
    return w->batch != NULL ? schedule_batch(cli, w->batch) : schedule_one(cli, w);
}

const struct command command_schedule = {
    .name = "schedule",
    .synopsis = "-k ROUTING_KEY (--delay D|--at T) [OPTIONS] (--body S|--file F|-)\n"
                "       postdate schedule --batch FILE|-",
    .summary = "Schedule a message and print its id, or many from a file",
    .options = schedule_options,
    .check = check,
    .opens = true,
    .run = run_schedule,
    .takes_words = true,
    .order_size = sizeof(struct wanted),
    .close = cli_fields_close,
};
