/* Lines of `postdate schedule --batch` that come in pieces of any size. The first byte chooses the longest
 * line and the size of the pieces; the rest is what the pipe brings. */
#include "core/base/arena.h"
#include "core/base/timestamp.h"
#include "gateway/cli/schedule/line_reader.h"
#include "gateway/json/json_message.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECES_MAX 64 /* what a socket holds without a reader */

static const char *const allow[] = {"*"};
static const struct accept_rules rules = {.hold = HOLD_POLICY_PLAIN,
                                          .intake_queue = "postdate.intake",
                                          .intake_exchange = "postdate",
                                          .delivery_exchange = "postdate.delivery",
                                          .allow = allow,
                                          .allow_count = 1,
                                          .max_delay_ms = INT64_C(730) * DAY_MS,
                                          .max_body = 1000,
                                          .max_properties = 4096};

/* Each write is one read at the other end. */
static int open_source(struct bytes text, size_t piece)
{
    int ends[2];
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    for (int i = 0; text.len > 0; i++) {
        struct bytes part = fuzz_take(&text, i < PIECES_MAX ? piece : text.len);
        FUZZ_HOLDS(send(ends[1], part.data, part.len, MSG_DONTWAIT) == (ssize_t)part.len);
    }
    close(ends[1]);
    return ends[0];
}

static void check_json(struct json_parser *parser, struct arena *arena, struct bytes line)
{
    struct message m;
    struct err e = {0};
    /* A copy, because the line is followed by the next one. */
    uint8_t *copy = fuzz_copy(line);
    if (json_message_parse(parser, bytes_of(copy, line.len), arena, &m, &e) != 0)
        fuzz_check_err(&e, ERR_REJECT);
    free(copy);
    arena_reset(arena);
}

/* Without the mark that programs on Windows begin a file with. */
static struct bytes without_mark(struct bytes text)
{
    return bytes_start_with_str(text, "\xef\xbb\xbf") ? bytes_of(text.data + 3, text.len - 3) : text;
}

/* As many lines, with the same bytes, as simple splitting finds. */
static void check_lines(struct line_reader *reader, struct bytes rest, struct json_parser *parser,
                        struct arena *arena)
{
    static const volatile int stop;
    struct bytes line;
    struct err e = {0};
    int64_t wanted = 0;
    size_t total = rest.len;
    while (rest.len > 0) {
        struct bytes expected = fuzz_take_line(&rest);
        enum line_result got = line_reader_next(reader, &stop, &line, &e);
        FUZZ_HOLDS(got == (expected.len > reader->max ? LINE_TOO_LONG : LINE_OK));
        FUZZ_HOLDS(reader->lines == ++wanted);
        if (wanted == 1)
            expected = without_mark(expected);
        FUZZ_HOLDS(got == LINE_TOO_LONG || bytes_equal(line, expected));
        if (got == LINE_OK)
            check_json(parser, arena, line);
    }
    FUZZ_HOLDS(line_reader_next(reader, &stop, &line, &e) == LINE_END);
    FUZZ_HOLDS(line_reader_position(reader) == (int64_t)total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    uint8_t choice = fuzz_take_u8(&text);
    struct line_reader reader;
    struct json_parser parser;
    struct arena arena;
    int fd = open_source(text, 1 + (size_t)(choice & 0x0F) * 7);
    line_reader_init(&reader, fd, choice & 0x10 ? 1000 : 20);
    json_parser_init(&parser, &rules);
    parser.now_ms = FUZZ_NOW_MS;
    arena_init(&arena, (size_t)1 << 20);
    check_lines(&reader, text, &parser, &arena);
    arena_free(&arena);
    json_parser_free(&parser);
    line_reader_free(&reader);
    close(fd);
    return 0;
}
