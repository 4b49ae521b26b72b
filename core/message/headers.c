#include "core/message/headers.h"

#include "core/base/bytes.h"
#include "core/message/wire.h"
#include <string.h>

bool headers_is_of_delivery(struct bytes name)
{
    return bytes_equal_str(name, "x-delivery-count") || bytes_equal_str(name, "x-acquired-count") ||
           bytes_start_with_str(name, "x-opt-rabbitmq-");
}

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool begins_with(struct bytes name, const char *start)
{
    size_t n = strlen(start);
    if (name.len < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower(name.data[i]) != (uint8_t)start[i])
            return false;
    return true;
}

bool headers_is_ours(struct bytes name)
{
    return begins_with(name, "x-postdate-") || begins_with(name, "x-opt-delivery-") ||
           (begins_with(name, "x-delay") && name.len == strlen("x-delay"));
}

static bool is_to_lower(struct bytes name)
{
    if (!headers_is_ours(name))
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (lower(name.data[i]) != name.data[i])
            return true;
    return false;
}

int headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    bool any = false;
    *out = headers;
    while (!any && wire_next(&c, &f) == 1)
        any = is_to_lower(f.name);
    if (!any)
        return 0;
    uint8_t *copy = arena_alloc(arena, headers.len);
    if (!copy)
        return err_set(e, ERR_BUG, "out of memory for %zu bytes of headers", headers.len);
    size_t used = 0;
    for (int wrong = 0; wrong <= 1; wrong++) {
        c = wire_table(headers);
        while (wire_next(&c, &f) == 1) {
            if (is_to_lower(f.name) != (wrong == 1))
                continue;
            memcpy(copy + used, f.entry.data, f.entry.len);
            for (size_t i = 0; wrong == 1 && i < f.name.len; i++)
                copy[used + 1 + i] = lower(f.name.data[i]); /* behind the length of the name */
            used += f.entry.len;
        }
    }
    *out = bytes_of(copy, used);
    return 0;
}

/* --- names that were probably mistyped */
#define OURS "x-postdate-"
/* What publishers ask with. */
#define ASKED "at key exchange on-conflict hold spread deadline"
/* Headers of messages that were delivered, returned or rejected, which clients may republish. A new one must
 * not be similar to one of ASKED: earlier versions would refuse it. */
#define WRITTEN                                                                                              \
    "id due attempt user-id cc bcc recur nominal missed error routing-key queue expiration hops hops-since " \
    "copy intake last l0 l1 l2 l3 l4 l5 l6 properties delivered ping ping-queue"

static int refuse_name(struct bytes name, const char *rest, struct err *e)
{
    char shown[120], near[40];
    bytes_printable(name, shown, sizeof shown);
    if (nearest_word(rest, ASKED, near, sizeof near))
        return err_set(e, ERR_REJECT, "%s: is no header of Postdate: did you mean " OURS "%s?", shown, near);
    return err_set(e, ERR_REJECT,
                   "%s: is no header of Postdate (allowed: " OURS "at, -key, -exchange, -on-conflict, -hold, "
                   "-spread and -deadline, and those of a message that was delivered)",
                   shown);
}

bool headers_were_delivered(struct bytes headers)
{
    struct bytes id;
    return wire_find_string(headers, HEADER_ID, &id);
}

static bool is_known(struct bytes name)
{
    return bytes_is_among(name, ASKED) || bytes_is_among(name, WRITTEN);
}

bool headers_is_of_later_version(struct bytes name)
{
    char rest[32], near[40];
    if (!bytes_start_with_str(name, OURS))
        return false;
    name = bytes_of(name.data + strlen(OURS), name.len - strlen(OURS));
    return !is_known(name) &&
           !nearest_word(bytes_printable(name, rest, sizeof rest), ASKED, near, sizeof near);
}

int headers_check_names(struct bytes headers, struct err *e)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    bool again = headers_were_delivered(headers);
    while (wire_next(&c, &f) == 1) {
        char rest[32];
        if (!bytes_start_with_str(f.name, OURS))
            continue;
        struct bytes name = bytes_of(f.name.data + strlen(OURS), f.name.len - strlen(OURS));
        if (!is_known(name) && !(again && headers_is_of_later_version(f.name)))
            return refuse_name(f.name, bytes_printable(name, rest, sizeof rest), e);
    }
    return 0;
}

static bool equals(struct bytes name, const char *word)
{
    return name.len == strlen(word) && begins_with(name, word);
}

/* What HTTP says in a header, a request says elsewhere. */
static const struct {
    const char *name, *instead;
} of_http[] = {{"idempotency-key", "the property message-id"},
               {"authorization", "the field token of the body"},
               {"if-match", "the field if_match of the body"},
               {"if-none-match", "the field if_none_match of the body"}};

static const char *find_instead(const struct wire_field *f, bool again)
{
    int64_t ms;
    bool came_out = equals(f->name, HEADER_X_DELAY) && wire_field_int(f, &ms) && ms <= 0;
    for (size_t i = 0; i < sizeof of_http / sizeof of_http[0]; i++)
        if (equals(f->name, of_http[i].name))
            return of_http[i].instead;
    if (!headers_is_ours(f->name) || came_out)
        return NULL;
    if (begins_with(f->name, OURS) &&
        bytes_is_among(bytes_of(f->name.data + strlen(OURS), f->name.len - strlen(OURS)), WRITTEN))
        return NULL;
    if (again && headers_is_of_later_version(f->name))
        return NULL;
    return "the fields of the body";
}

int headers_check_request(struct bytes headers, struct err *e)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    char shown[120];
    bool again = headers_were_delivered(headers);
    while (wire_next(&c, &f) == 1) {
        const char *instead = find_instead(&f, again);
        if (instead != NULL)
            return err_set(e, ERR_REJECT, "%s: this header has no meaning on a request (allowed instead: %s)",
                           bytes_printable(f.name, shown, sizeof shown), instead);
    }
    return 0;
}

/* One letter more, less, or another one, or two neighbours that changed places. */
static bool is_near(struct bytes name, const char *word)
{
    size_t len = strlen(word), same = 0, tail = 0, shorter = name.len < len ? name.len : len;
    while (same < shorter && lower(name.data[same]) == (uint8_t)word[same])
        same++;
    while (tail < shorter - same && lower(name.data[name.len - 1 - tail]) == (uint8_t)word[len - 1 - tail])
        tail++;
    size_t longer = name.len > len ? name.len : len;
    return longer - same - tail == 1 ||
           (name.len == len && same + tail + 2 == len && lower(name.data[same]) == (uint8_t)word[same + 1] &&
            lower(name.data[same + 1]) == (uint8_t)word[same]);
}

bool headers_near_delay(struct bytes headers, struct bytes *name)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    while (wire_next(&c, &f) == 1) {
        *name = f.name;
        if (is_near(f.name, HEADER_X_DELAY))
            return true;
    }
    return false;
}
