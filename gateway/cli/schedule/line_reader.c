#include "gateway/cli/schedule/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE ((size_t)256 * 1024)
#define PATIENCE_MS 2
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* programs on Windows begin a file with it */

void line_reader_init(struct line_reader *r, int fd, size_t max)
{
    *r = (struct line_reader){.fd = fd, .max = max};
    fcntl(fd, F_SETPIPE_SZ, 1024 * 1024); /* fuller chunks from a pipe; fails for others, which is fine */
}

void line_reader_free(struct line_reader *r)
{
    free(r->data);
    r->data = NULL;
}

static int make_room(struct line_reader *r, struct err *e)
{
    if (r->start > 0) {
        memmove(r->data, r->data + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    if (r->capacity - r->end >= READ_SIZE)
        return 0;
    size_t capacity = r->capacity == 0 ? READ_SIZE * 2 : r->capacity * 2;
    uint8_t *data = realloc(r->data, capacity);
    if (data == NULL)
        return err_set(e, ERR_BUG, "out of memory for a line of %zu bytes", r->end);
    r->data = data;
    r->capacity = capacity;
    return 0;
}

static enum line_result fill_buffer(struct line_reader *r, const volatile int *stop, struct err *e)
{
    if (make_room(r, e) != 0)
        return LINE_FAILED;
    for (;;) {
        if (*stop)
            return LINE_STOPPED;
        ssize_t n = read(r->fd, r->data + r->end, READ_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            err_set(e, ERR_REJECT, "cannot read the batch: %s", strerror(errno));
            return LINE_FAILED;
        }
        r->at_end = n == 0;
        r->end += (size_t)n;
        r->bytes_read += n;
        return LINE_OK;
    }
}

/* True when a read would not wait for a slow writer. */
static bool has_more(const struct line_reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) != 0;
}

/* Until a whole line (or the last one) is in memory; *len is its length, *used with its end. */
static enum line_result find_line(struct line_reader *r, bool wait, const volatile int *stop, size_t *len,
                                  size_t *used, struct err *e)
{
    for (;;) {
        size_t have = r->end - r->start;
        const uint8_t *from = r->data == NULL ? NULL : r->data + r->start;
        const uint8_t *end = have > r->scanned ? memchr(from + r->scanned, '\n', have - r->scanned) : NULL;
        if (end != NULL || r->at_end) {
            *len = end != NULL ? (size_t)(end - from) : have;
            *used = end != NULL ? *len + 1 : have;
            return end != NULL || have > 0 || r->skipping ? LINE_OK : LINE_END;
        }
        r->scanned = have;
        if (have > r->max) { /* keep the memory bounded */
            r->skipping = true;
            r->start = r->end = r->scanned = 0;
        }
        if (!wait && !has_more(r))
            return LINE_WAIT;
        enum line_result filled = fill_buffer(r, stop, e);
        if (filled != LINE_OK)
            return filled;
    }
}

enum line_result line_reader_wait(struct line_reader *r, const volatile int *stop, struct err *e)
{
    size_t len, used;
    return find_line(r, true, stop, &len, &used, e);
}

enum line_result line_reader_next(struct line_reader *r, const volatile int *stop, struct bytes *line,
                                  struct err *e)
{
    size_t len, used;
    enum line_result found = find_line(r, false, stop, &len, &used, e);
    if (found != LINE_OK)
        return found;
    bool too_long = r->skipping || len > r->max;
    *line = bytes_of(r->data == NULL ? NULL : r->data + r->start, len);
    if (r->lines == 0 && bytes_start_with_str(*line, BYTE_ORDER_MARK))
        *line = bytes_of(line->data + strlen(BYTE_ORDER_MARK), len - strlen(BYTE_ORDER_MARK));
    r->start += used;
    r->scanned = 0;
    r->skipping = false;
    r->lines++;
    return too_long ? LINE_TOO_LONG : LINE_OK;
}

int64_t line_reader_position(const struct line_reader *r)
{
    return r->bytes_read - (int64_t)(r->end - r->start);
}
