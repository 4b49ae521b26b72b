/* `postdate schedule --batch`: NDJSON in chunks, each one transaction.
 *
 * What was said to be stored is stored: a chunk counts after its commit. Whatever stops the run, the last
 * words name the line up to which everything is stored or was reported as refused. */
#include "core/arena.h"
#include "core/random.h"
#include "gateway/cli/line_reader.h"
#include "gateway/cli/progress.h"
#include "gateway/cli/schedule.h"
#include "gateway/json_message.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_LINES 5000
#define CHUNK_BYTES ((size_t)4 * 1024 * 1024)
#define CHUNK_MEMORY (CHUNK_BYTES + 2 * JSON_MESSAGE_MAX) /* the last line may be a long one */
#define ERRORS_SHOWN 10

static volatile int
    interrupted; /* int, not sig_atomic_t, which is the same here: line_reader takes a pointer */

struct batch {
    struct cli *cli;
    struct line_reader reader;
    struct json_parser parser;
    struct arena arena; /* of the chunk */
    struct random_pool random;
    struct progress progress;
    struct store_item *items; /* CHUNK_LINES */
    int64_t *lines;           /* the line each item came from */
    size_t count;
    int64_t done_line; /* everything up to here is stored or refused */
    int64_t accepted, kept, refused;
    bool wake;
    bool in_doubt; /* the connection died under a chunk: its lines are neither known to be stored nor not */
};

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static void refuse(struct batch *b, int64_t line, const char *why)
{
    b->refused++;
    if (b->refused > ERRORS_SHOWN)
        return;
    progress_clear(&b->progress);
    fprintf(stderr, "postdate: line %lld: %s\n", (long long)line, why);
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
    struct store_item *item = &b->items[b->count];
    uint8_t random[10];
    struct err e;
    if (is_blank(line))
        return;
    *item = (struct store_item){0};
    if (json_message_parse(&b->parser, line, &b->arena, &item->message, &e) != 0) {
        refuse(b, b->reader.lines, e.text);
        return;
    }
    random_take(&b->random, random, sizeof random);
    item->message.id = message_id_make(item->message.due_ms, random);
    b->wake = b->wake || item->message.due_ms <= b->parser.now_ms + SCHEDULE_WAKE_MS;
    b->lines[b->count++] = b->reader.lines;
}

static void count_results(struct batch *b, size_t first, size_t count)
{
    char text[480];
    for (size_t i = first; i < first + count; i++) {
        const struct store_item *item = &b->items[i];
        if (item->result == STORE_ACCEPTED || item->result == STORE_REPLACED)
            b->accepted++;
        else if (item->result == STORE_KEPT || item->result == STORE_DUPLICATE)
            b->kept++;
        else
            refuse(b, b->lines[i], schedule_refusal(item, text, sizeof text));
    }
    b->done_line = b->lines[first + count - 1];
}

/* When Postgres refuses something in a chunk, halving finds it: everything else is stored. */
static int store_range(struct batch *b, size_t first, size_t count, struct err *e)
{
    if (schedule_store(b->cli, b->items + first, count, e) == 0) {
        count_results(b, first, count);
        return 0;
    }
    if (e->kind != ERR_REJECT)
        return -1;
    if (count == 1) {
        refuse(b, b->lines[first], e->text);
        b->done_line = b->lines[first];
        return 0;
    }
    if (store_range(b, first, count / 2, e) != 0)
        return -1;
    return store_range(b, first + count / 2, count - count / 2, e);
}

static int store_chunk(struct batch *b, struct err *e)
{
    if (b->count > 0 && store_range(b, 0, b->count, e) != 0) {
        b->in_doubt = e->kind == ERR_AWAY || pg_is_broken(b->cli->pg);
        return -1;
    }
    b->done_line = b->reader.lines;
    if (b->wake && store_wake(b->cli->pg, e) != 0)
        return -1;
    progress_update(&b->progress, line_reader_position(&b->reader), b->reader.lines);
    return 0;
}

/* Reads up to a chunk's worth, less when the writer pauses. LINE_OK: more may follow. */
static enum line_result read_chunk(struct batch *b, struct err *e)
{
    int64_t start = line_reader_position(&b->reader);
    enum line_result result = LINE_OK;
    struct bytes line;
    char text[80];
    arena_reset(&b->arena);
    b->count = 0;
    b->wake = false;
    while (result == LINE_OK && b->count < CHUNK_LINES &&
           line_reader_position(&b->reader) - start < (int64_t)CHUNK_BYTES && !interrupted) {
        result = line_reader_next(&b->reader, &interrupted, &line, e);
        if (result == LINE_OK) {
            take_line(b, line);
        } else if (result == LINE_TOO_LONG) {
            snprintf(text, sizeof text, "longer than %zu MiB, which is not allowed", JSON_MESSAGE_MAX >> 20);
            refuse(b, b->reader.lines, text);
            result = LINE_OK;
        }
    }
    return interrupted ? LINE_STOPPED : result == LINE_WAIT ? LINE_OK : result;
}

static int run_chunks(struct batch *b, struct err *e)
{
    enum line_result result;
    do {
        int64_t now_us;
        struct err store_error;
        /* Delays count from when a line is there, so the clock is asked after waiting for one. */
        result = line_reader_wait(&b->reader, &interrupted, e);
        if (result != LINE_OK)
            break;
        if (store_clock(b->cli->pg, &now_us, e) != 0)
            return -1;
        b->parser.now_ms = now_us / 1000;
        result = read_chunk(b, e);
        /* What was read is stored also when reading failed or a signal came. */
        if (store_chunk(b, &store_error) != 0) {
            *e = store_error;
            return -1;
        }
    } while (result == LINE_OK);
    if (result == LINE_STOPPED)
        return err_set(e, ERR_STOPPING, "interrupted");
    return result == LINE_FAILED ? -1 : 0;
}

static int summarise(struct batch *b, int result, const struct err *e)
{
    progress_clear(&b->progress);
    if (b->refused > ERRORS_SHOWN)
        fprintf(stderr, "postdate: … and %lld more errors\n", (long long)(b->refused - ERRORS_SHOWN));
    if (result != 0) {
        fprintf(stderr, "postdate: %s\n", e->text);
        fprintf(stderr, "postdate: everything up to line %lld is stored or was refused",
                (long long)b->done_line);
        if (b->in_doubt)
            fprintf(stderr, "; lines %lld to %lld may or may not be stored", (long long)b->done_line + 1,
                    (long long)b->reader.lines);
        fputs("; nothing behind that is\n", stderr);
    }
    double seconds = progress_seconds(&b->progress);
    int64_t lines = b->accepted + b->kept + b->refused;
    fprintf(stderr, "accepted %lld, kept %lld, refused %lld in %.1f s (%.0f/s)\n", (long long)b->accepted,
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

static int run_batch(struct cli *cli, int fd)
{
    struct accept_rules rules = config_accept_rules(&cli->config);
    struct batch b = {.cli = cli};
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: read(2) must return */
    struct err e;
    b.items = calloc(CHUNK_LINES, sizeof *b.items);
    b.lines = calloc(CHUNK_LINES, sizeof *b.lines);
    line_reader_init(&b.reader, fd, JSON_MESSAGE_MAX);
    json_parser_init(&b.parser, &rules);
    arena_init(&b.arena, CHUNK_MEMORY);
    progress_start(&b.progress, file_size(fd));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    err_clear(&e);
    int result =
        b.items == NULL || b.lines == NULL ? err_set(&e, ERR_BUG, "out of memory") : run_chunks(&b, &e);
    int code = summarise(&b, result, &e);
    arena_free(&b.arena);
    json_parser_free(&b.parser);
    line_reader_free(&b.reader);
    free(b.lines);
    free(b.items);
    return code;
}

int schedule_batch(struct cli *cli, const char *path)
{
    struct err e;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        err_set(&e, ERR_REJECT, "cannot read %s: %s", path, strerror(errno));
        return cli_fail(&e);
    }
    int code = cli_open(cli, CLI_SCHEMA_CURRENT);
    if (code == 0)
        code = run_batch(cli, fd);
    if (!is_stdin)
        close(fd);
    return code;
}
