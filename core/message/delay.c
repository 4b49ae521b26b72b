#include "core/message/delay.h"
#include "core/base/duration.h"
#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/base/timestamp.h"
#include "core/message/headers.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_DELAY "x-opt-delivery-delay"
#define BLANKS " \t"

enum { VALUE_TEXT_SIZE = 120, SECOND_REST_MS = 999, TEXT_MAX = 64 };

/* Text as a string of C's: it may be a number, a time or a duration. False: it is too long, or no text. */
static bool copy_text(const struct wire_field *f, char out[TEXT_MAX + 1])
{
    if (f->kind != 'S' || f->value.len > TEXT_MAX || !bytes_is_text(f->value))
        return false;
    snprintf(out, TEXT_MAX + 1, "%.*s", (int)f->value.len, (const char *)f->value.data);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* [spaces] [sign] digits [. digits] [spaces] */
static bool number_from_text(const struct wire_field *f, int64_t *out)
{
    char text[TEXT_MAX + 1], *end;
    if (!copy_text(f, text))
        return false;
    const char *p = text + strspn(text, BLANKS);
    if (!is_digit(p[*p == '-' || *p == '+']))
        return false;
    *out = strtoll(p, &end, 10); /* saturates */
    if (*end == '.' && is_digit(end[1]))
        end += 1 + strspn(end + 1, "0123456789");
    return end[strspn(end, BLANKS)] == '\0';
}

static bool number_from_double(double v, int64_t *out)
{
    if (!isfinite(v))
        return false;
    if (v >= 9223372036854775808.0) /* 2^63 */
        *out = INT64_MAX;
    else if (v <= -9223372036854775808.0)
        *out = INT64_MIN;
    else
        *out = (int64_t)v;
    return true;
}

/* Clients disagree whether the 32 bits have a sign. With the top bit set one reading is years too early, so
 * such a value is not taken as a number at all. */
static bool number_from_decimal(struct bytes raw, int64_t *out)
{
    if (raw.len != 5 || raw.data[1] & 0x80)
        return false;
    int64_t v = (int64_t)wire_number(bytes_of(raw.data + 1, 4));
    for (unsigned scale = raw.data[0]; scale > 0 && v > 0; scale--)
        v /= 10;
    *out = v;
    return true;
}

bool delay_number(const struct wire_field *f, int64_t *out)
{
    double v;
    switch (f->kind) {
    case 'S':
        return number_from_text(f, out);
    case 'f':
    case 'd':
        return wire_field_double(f, &v) && number_from_double(v, out);
    case 'D':
        return number_from_decimal(f->value, out);
    case 'L':
        if (!wire_field_int(f, out))
            *out = INT64_MAX;
        return true;
    case 'T': /* a point in time, not a number of milliseconds */
        return false;
    default:
        return wire_field_int(f, out);
    }
}

static const char *kind_name(char kind)
{
    static const struct {
        char kind;
        const char *name;
    } table[] = {{'T', "an AMQP timestamp"}, {'L', "a number over 9223372036854775807"},
                 {'t', "a boolean"},         {'D', "a decimal"},
                 {'F', "a table"},           {'A', "an array"},
                 {'x', "binary data"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].kind == kind)
            return table[i].name;
    return "an empty value";
}

const char *delay_describe(const struct wire_field *f, char *out, size_t out_size)
{
    char text[80];
    int64_t n;
    double v;
    if (f->kind == 'S')
        snprintf(out, out_size, "\"%s\"", bytes_printable(f->value, text, sizeof(text)));
    else if (wire_field_double(f, &v))
        snprintf(out, out_size, "%.17g", v);
    else if (f->kind != 'T' && wire_field_int(f, &n))
        snprintf(out, out_size, "%lld", (long long)n);
    else
        snprintf(out, out_size, "%s", kind_name(f->kind));
    return out;
}

static int64_t clamp_time(int64_t ms)
{
    if (ms < TIMESTAMP_MIN_MS)
        return TIMESTAMP_MIN_MS;
    return ms > TIMESTAMP_MAX_MS ? TIMESTAMP_MAX_MS : ms;
}

static int64_t base_ms(struct bytes headers, const struct delay_clock *clock, bool *from_now)
{
    struct wire_field f;
    int64_t stamp;
    *from_now = false;
    if (clock->broker_stamps && wire_find(headers, STAMP_HEADER, &f) && f.kind != 'T' &&
        wire_field_int(&f, &stamp) && !__builtin_add_overflow(stamp, clock->stamp_behind_ms, &stamp) &&
        stamp >= TIMESTAMP_MIN_MS && stamp <= clock->now_ms)
        return stamp;
    *from_now = true;
    return clock->now_ms;
}

int delay_check_era(const char *name, int64_t due_ms, struct err *e)
{
    char at[40];
    if (due_ms >= DELAY_FIRST_MS)
        return 0;
    return err_set(
        e, ERR_REJECT,
        "%s: %s lies before 1973: was a time in seconds taken for milliseconds? (allowed: any time "
        "since then; one in the past is now)",
        name, timestamp_format(due_ms, at, sizeof at));
}

static int refuse_seconds(const struct wire_field *f, const char *name, int64_t ms, struct err *e)
{
    char value[VALUE_TEXT_SIZE];
    int64_t n;
    if (ms >= DELAY_FIRST_MS || f->kind == 'T')
        return 0;
    if (!delay_number(f, &n))
        return delay_check_era(name, ms, e);
    return err_set(e, ERR_REJECT,
                   "%s: %s as milliseconds since 1970 is a time before 1973: is it in seconds? (allowed: "
                   "milliseconds since 1970, so %lld or more)",
                   name, delay_describe(f, value, sizeof value), (long long)DELAY_FIRST_MS);
}

/* Saturated, as delay_number. */
static bool point_in_time(const struct wire_field *f, int64_t *out_ms)
{
    if (f->kind == 'T') { /* whole seconds: clients, and RabbitMQ for AMQP 1.0, cut the rest off */
        if (!wire_field_int(f, out_ms) || __builtin_mul_overflow(*out_ms, 1000, out_ms) ||
            __builtin_add_overflow(*out_ms, SECOND_REST_MS, out_ms))
            *out_ms = INT64_MAX;
        return true;
    }
    char text[TEXT_MAX + 1];
    return delay_number(f, out_ms) || (copy_text(f, text) && timestamp_parse(text, out_ms, NULL) == 0);
}

static int read_time(const struct wire_field *f, const char *name, const struct delay_clock *clock,
                     int64_t *due_ms, struct err *e)
{
    char value[VALUE_TEXT_SIZE];
    char limit[40];
    int64_t time_ms, ahead_ms;
    if (!point_in_time(f, &time_ms))
        return err_set(e, ERR_REJECT,
                       "%s: %s is not a point in time (allowed: milliseconds since 1970 as integer, float or "
                       "numeric string, an AMQP timestamp, or RFC 3339 with an offset, at most %s ahead)",
                       name, delay_describe(f, value, sizeof(value)),
                       duration_format(clock->max_delay_ms, limit, sizeof(limit)));
    if (refuse_seconds(f, name, time_ms, e) != 0)
        return -1;
    if (__builtin_sub_overflow(time_ms, clock->now_ms, &ahead_ms))
        ahead_ms = time_ms < 0 ? INT64_MIN : INT64_MAX;
    if (ahead_ms > clock->max_delay_ms || time_ms > TIMESTAMP_MAX_MS)
        return err_set(
            e, ERR_REJECT,
            "%s: %s is too far ahead (allowed: milliseconds since 1970, at most %lld ms = %s from now)", name,
            delay_describe(f, value, sizeof(value)), (long long)clock->max_delay_ms,
            duration_format(clock->max_delay_ms, limit, sizeof(limit)));
    *due_ms = clamp_time(time_ms);
    return 0;
}

static int read_delay(const struct wire_field *f, const char *name, int64_t max_ms, int64_t *out_ms,
                      struct err *e)
{
    char value[VALUE_TEXT_SIZE];
    char limit[40];
    if (!delay_number(f, out_ms))
        return err_set(
            e, ERR_REJECT,
            "%s: %s is not a number of milliseconds (allowed: integer, float or numeric string, at most "
            "%lld)",
            name, delay_describe(f, value, sizeof(value)), (long long)max_ms);
    if (*out_ms > max_ms)
        return err_set(e, ERR_REJECT, "%s: %s ms is too long (allowed: at most %lld ms = %s)", name,
                       delay_describe(f, value, sizeof(value)), (long long)max_ms,
                       duration_format(max_ms, limit, sizeof(limit)));
    return 0;
}

/* Even if this parser and the exchange type's differ: a message that the type delayed is not delivered at
 * once. */
static int check_by_type(const struct wire_field *x_delay, struct err *e)
{
    char value[VALUE_TEXT_SIZE];
    int64_t ms = 0;
    if (x_delay && (!delay_number(x_delay, &ms) || ms > 0))
        return 0;
    return err_set(e, ERR_REJECT,
                   "x-delay: %s, in a message that an exchange of the type x-delayed-message sends to be "
                   "delayed (allowed: a number of milliseconds > 0)",
                   x_delay ? delay_describe(x_delay, value, sizeof value) : "it is missing");
}

int delay_read(struct bytes headers, const struct delay_clock *clock, struct delay *out, struct err *e)
{
    struct wire_field time_field, delay_field, x_field;
    bool asks = !clock->by_type;
    bool has_at = asks && wire_find(headers, AT_HEADER, &time_field);
    bool has_time = has_at || (asks && wire_find(headers, DELIVERY_TIME_HEADER, &time_field));
    bool has_delay = asks && wire_find(headers, HEADER_DELAY, &delay_field);
    bool has_x = wire_find(headers, HEADER_X_DELAY, &x_field);
    int64_t delay_ms = clock->unasked_ms, x_ms;

    *out = (struct delay){0};
    if (clock->by_type && check_by_type(has_x ? &x_field : NULL, e) != 0)
        return -1;
    if (has_x && delay_number(&x_field, &x_ms) && x_ms > 0 && x_ms <= clock->max_delay_ms)
        out->x_delay_ms = x_ms;
    out->later = has_time;
    if (has_time)
        return read_time(&time_field, has_at ? AT_HEADER : DELIVERY_TIME_HEADER, clock, &out->due_ms, e);
    if ((has_delay || has_x) &&
        read_delay(has_delay ? &delay_field : &x_field, has_delay ? HEADER_DELAY : HEADER_X_DELAY,
                   clock->max_delay_ms, &delay_ms, e) != 0)
        return -1;
    /* Not before its arrival: a consumer that republishes a message sends x-delay: -86400000. */
    int64_t due_ms = base_ms(headers, clock, &out->from_now);
    out->later = (has_delay || has_x) && delay_ms > 0;
    if (delay_ms > 0 && __builtin_add_overflow(due_ms, delay_ms, &due_ms))
        due_ms = TIMESTAMP_MAX_MS;
    out->due_ms = clamp_time(due_ms);
    return 0;
}

/* --- spread */
#define NAME_SIZE 520

static uint64_t random_part(void)
{
    return (uint64_t)random_u32() << 32 | random_u32();
}

/* The first eight bytes of a hash: of "key", a newline, the exchange and the key, or of "id", a newline and
 * the message-id. A newline in a name makes no two of them one: what follows an exchange's is one byte for
 * its length. */
static uint64_t part_of(const struct spread_name *name)
{
    uint8_t hash[SHA256_SIZE];
    struct buf text;
    bool has_key = name->key.len > 0;
    struct bytes exchange = has_key ? name->exchange : (struct bytes){0},
                 last = has_key ? name->key : name->message_id;
    buf_init(&text, NAME_SIZE);
    buf_put_str(&text, has_key ? "key\n" : "id\n\n");
    wire_put_name(&text, exchange);
    wire_put_name(&text, last);
    bool failed = text.failed || !sha256(buf_bytes(&text), hash);
    buf_free(&text);
    return failed ? random_part() : wire_number(bytes_of(hash, 8));
}

int64_t spread_draw(const struct spread_name *name, int64_t spread_ms)
{
    bool named = name->key.len > 0 || name->message_id.len > 0;
    uint64_t part = named ? part_of(name) : random_part();
    /* 53 bits, as many as a float has: SQL counts with the same. */
    return spread_ms <= 0 ? 0 : (int64_t)((double)(part >> 11) * 0x1p-53 * ((double)spread_ms + 1));
}

int spread_check(const char *what, int64_t spread_ms, int64_t ahead_ms, int64_t max_ms, struct err *e)
{
    char given[48], longest[48];
    int64_t end_ms;
    if (spread_ms >= 0 && !__builtin_add_overflow(ahead_ms > 0 ? ahead_ms : 0, spread_ms, &end_ms) &&
        end_ms <= max_ms)
        return 0;
    return err_set(e, ERR_REJECT,
                   "%s: %s ends too far ahead (allowed: delay and spread together up to %s, "
                   "delivery.max_delay)",
                   what, duration_format(spread_ms, given, sizeof given),
                   duration_format(max_ms, longest, sizeof longest));
}

int spread_read(struct bytes headers, int64_t max_ms, int64_t *out_ms, struct err *e)
{
    struct wire_field f;
    char value[VALUE_TEXT_SIZE], text[TEXT_MAX + 1], longest[48];
    *out_ms = 0;
    if (!wire_find(headers, SPREAD_HEADER, &f))
        return 0;
    bool known = delay_number(&f, out_ms) || (copy_text(&f, text) && duration_parse(text, out_ms, NULL) == 0);
    if (known && *out_ms >= 0 && *out_ms <= max_ms)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %s is not allowed (allowed: 0 to %s, in milliseconds or as \"10m\")",
                   SPREAD_HEADER, delay_describe(&f, value, sizeof value),
                   duration_format(max_ms, longest, sizeof longest));
}

/* --- deadline */
#define DEADLINE_ALLOWED "allowed: milliseconds since 1970 as integer, float or numeric string"

/* False: no point in time that can be kept. */
static bool read_deadline(const struct wire_field *f, int64_t *out_ms)
{
    int64_t ms;
    if (f->kind == 'T') { /* whole seconds: the decimals are not guessed, because that could be too late */
        if (!wire_field_int(f, &ms) || __builtin_mul_overflow(ms, 1000, &ms))
            return false;
    } else if (!delay_number(f, &ms)) {
        return false;
    }
    if (ms < TIMESTAMP_MIN_MS || ms > TIMESTAMP_MAX_MS)
        return false;
    *out_ms = ms;
    return true;
}

int deadline_check(const char *what, int64_t deadline_ms, int64_t due_ms, struct err *e)
{
    char deadline[40], due[40];
    if (deadline_ms >= due_ms)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %s lies before the due time %s (allowed: the due time or later)", what,
                   timestamp_format(deadline_ms, deadline, sizeof deadline),
                   timestamp_format(due_ms, due, sizeof due));
}

int deadline_read(struct bytes headers, int64_t due_ms, int64_t *out_ms, struct err *e)
{
    struct wire_field f;
    char value[VALUE_TEXT_SIZE], due[40];
    *out_ms = 0;
    if (!wire_find(headers, DEADLINE_HEADER, &f))
        return 0;
    if (!read_deadline(&f, out_ms))
        return err_set(e, ERR_REJECT, "%s: %s is not a point in time (" DEADLINE_ALLOWED ")", DEADLINE_HEADER,
                       delay_describe(&f, value, sizeof value));
    if (refuse_seconds(&f, DEADLINE_HEADER, *out_ms, e) != 0)
        return -1;
    if (*out_ms < due_ms)
        return err_set(e, ERR_REJECT,
                       "%s: %s lies before the due time, %s (" DEADLINE_ALLOWED ", not before the due time)",
                       DEADLINE_HEADER, delay_describe(&f, value, sizeof value),
                       timestamp_format(due_ms, due, sizeof due));
    return 0;
}

int64_t deadline_of(struct bytes headers)
{
    struct wire_field f;
    int64_t ms;
    return wire_find(headers, DEADLINE_HEADER, &f) && read_deadline(&f, &ms) ? ms : 0;
}

/* --- RabbitMQ's timestamps */
#define FORGED_MS 1

void stamp_put_probe(struct buf *properties)
{
    const struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_DELIVERY_MODE, .delivery_mode = 1};
    size_t headers = wire_properties_begin(&p, properties);
    wire_put_int64(properties, bytes_of_str(STAMP_HEADER), FORGED_MS);
    wire_properties_end(&p, headers, properties);
}

struct stamp_finding stamp_judge(struct bytes properties, int64_t sent_ms, int64_t received_ms)
{
    const struct stamp_finding none = {.verdict = STAMP_NONE};
    struct wire_field f;
    int64_t stamp_ms;

    if (!wire_find_header(properties, STAMP_HEADER, &f) || f.kind == 'T' || !wire_field_int(&f, &stamp_ms) ||
        stamp_ms <= FORGED_MS || sent_ms > received_ms)
        return none;
    if (__builtin_sub_overflow(received_ms, stamp_ms, &(int64_t){0}))
        return none;
    int64_t behind_ms = received_ms - stamp_ms;
    /* With clocks that agree the stamp lies between sent and received. */
    if (stamp_ms < sent_ms - STAMP_SKEW_MAX_MS || stamp_ms > received_ms + STAMP_SKEW_MAX_MS)
        return (struct stamp_finding){STAMP_SKEWED, behind_ms};
    return (struct stamp_finding){STAMP_TRUSTED, behind_ms};
}
