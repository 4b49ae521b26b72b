/* Lines of a file or pipe of any length up to a limit, with few copies. One thread. */
#ifndef POSTDATE_GATEWAY_CLI_SCHEDULE_LINE_READER_H
#define POSTDATE_GATEWAY_CLI_SCHEDULE_LINE_READER_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct line_reader {
    int fd;
    size_t max; /* longest line */
    uint8_t *data;
    size_t start, end, capacity;
    size_t scanned; /* bytes after start without a line end */
    int64_t bytes_read, lines;
    bool at_end, skipping; /* skipping: the rest of a line that was too long */
};

enum line_result {
    LINE_OK,
    LINE_TOO_LONG, /* the line was skipped */
    LINE_WAIT,     /* no whole line is available yet */
    LINE_END,
    LINE_STOPPED, /* a signal has set *stop */
    LINE_FAILED,  /* e is set */
};

void line_reader_init(struct line_reader *r, int fd, size_t max);
void line_reader_free(struct line_reader *r);
/* Waits for the next line, without a time limit. Does not consume it. */
enum line_result line_reader_wait(struct line_reader *r, const volatile int *stop, struct err *e);
/* Reads the next line, without its end; valid until the next call. Hardly waits: LINE_WAIT if it is not
 * complete. r->lines is its number. */
enum line_result line_reader_next(struct line_reader *r, const volatile int *stop, struct bytes *line,
                                  struct err *e);
/* Bytes consumed so far. */
int64_t line_reader_position(const struct line_reader *r);

#endif
