#include "core/message/dead_letter.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <string.h>

#define ID "0190a3f4-1111-8222-9333-444455556666"

/* A dead letter as RabbitMQ delivers it. */
struct letter {
    struct buf headers, properties;
    struct accept_input input;
};

static const char *shop = "shop"; /* the exchange in x-death */

static void put_death(struct buf *headers, const char *queue, const char *reason, const char *expiration)
{
    struct buf one, items, keys;
    buf_init(&one, 1000);
    buf_init(&items, 1000);
    buf_init(&keys, 1000);
    wire_put_int64(&one, bytes_of_str("count"), 1);
    sample_put_text(&one, "reason", reason);
    sample_put_text(&one, "queue", queue);
    sample_put_text(&one, "exchange", shop);
    wire_put_item(&keys, 'S', bytes_of_str("order.new"));
    wire_put_field(&one, bytes_of_str("routing-keys"), 'A', buf_bytes(&keys));
    if (expiration)
        sample_put_text(&one, "original-expiration", expiration);
    wire_put_item(&items, 'F', buf_bytes(&one));
    buf_reset(&one);
    sample_put_text(&one, "queue", "an earlier one");
    wire_put_item(&items, 'F', buf_bytes(&one));
    wire_put_field(headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    buf_free(&one);
    buf_free(&items);
    buf_free(&keys);
}

static void open_letter(struct letter *l)
{
    buf_init(&l->headers, 4000);
    buf_init(&l->properties, 4000);
    l->input = (struct accept_input){.exchange = bytes_of_str("postdate.retry"),
                                     .routing_key = bytes_of_str("a dead-letter routing key"),
                                     .body = bytes_of_str("body")};
}

static void close_letter(struct letter *l)
{
    buf_free(&l->headers);
    buf_free(&l->properties);
}

static int read_letter(struct letter *l, struct wire_properties p, struct dead_letter *out, struct err *e)
{
    p.flags |= WIRE_HEADERS;
    p.headers = buf_bytes(&l->headers);
    buf_reset(&l->properties);
    wire_properties_write(&p, &l->properties);
    l->input.properties = buf_bytes(&l->properties);
    return dead_letter_read(&l->input, out, e);
}

TEST(test_what_is_read)
{
    struct letter l;
    struct dead_letter d;
    open_letter(&l);
    put_death(&l.headers, "orders", "delivery_limit", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_true(bytes_equal_str(d.queue, "orders"));
    assert_int_equal(d.reason, DEATH_DELIVERY_LIMIT);
    assert_true(bytes_equal_str(d.exchange, "shop"));
    assert_true(bytes_equal_str(d.routing_key, "order.new"));
    assert_false(d.has_lineage);
    assert_int_equal(d.attempt, 1);
    close_letter(&l);
}

TEST(test_exchanges)
{
    struct letter l;
    struct dead_letter d;
    struct err e = {0};
    open_letter(&l);
    /* RabbitMQ itself has let it go: it names the way there */
    shop = "postdate.last";
    put_death(&l.headers, "orders", "rejected", NULL);
    sample_put_text(&l.headers, "x-postdate-exchange", "shop");
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_true(bytes_equal_str(d.exchange, "shop"));
    buf_reset(&l.headers);
    /* no text: the database would refuse the whole batch */
    shop = "sh\xffp";
    put_death(&l.headers, "orders", "rejected", NULL);
    shop = "shop";
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    assert_non_null(strstr(e.text, "exchange"));
    close_letter(&l);
}

TEST(test_what_is_none_is_refused)
{
    struct letter l;
    struct dead_letter d;
    struct err e = {0};
    open_letter(&l);
    put_death(&l.headers, "orders", "rejected", NULL);
    l.input.exchange = bytes_of_str("");
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    assert_non_null(strstr(e.text, "postdate.retry"));
    l.input.exchange = bytes_of_str("postdate.retry");
    buf_reset(&l.headers);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    put_death(&l.headers, "orders", "boredom", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, &e), -1);
    assert_non_null(strstr(e.text, "boredom"));
    close_letter(&l);
}

/* Only what we wrote for that very queue counts, and only as far as a policy can go. */
TEST(test_attempts)
{
    static const struct {
        const char *id, *queue;
        int64_t attempt;
        int expected;
    } cases[] = {{ID, "orders", 4, 4},       {ID, "others", 4, 1},    {NULL, "orders", 4, 1},
                 {ID, NULL, 4, 1},           {ID, "orders", -3, 1},   {ID, "orders", INT64_MAX, 1},
                 {ID, "orders", 1000, 1000}, {ID, "orders", 1001, 1}, {"no id", "orders", 4, 1}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct letter l;
        struct dead_letter d;
        open_letter(&l);
        put_death(&l.headers, "orders", "rejected", NULL);
        if (cases[i].id)
            sample_put_text(&l.headers, "x-postdate-id", cases[i].id);
        if (cases[i].queue)
            sample_put_text(&l.headers, "x-postdate-queue", cases[i].queue);
        wire_put_int64(&l.headers, bytes_of_str("x-postdate-attempt"), cases[i].attempt);
        assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
        assert_int_equal(d.attempt, cases[i].expected);
        close_letter(&l);
    }
}

static int64_t count_of_newest(struct bytes headers)
{
    struct wire_field f, death, count;
    int64_t n = -1;
    if (!wire_find(headers, "x-death", &f))
        return 0;
    struct wire_cursor c = wire_array(f.value);
    assert_int_equal(wire_next(&c, &death), 1);
    if (wire_find(death.value, "count", &count))
        wire_field_int(&count, &n);
    return n;
}

TEST(test_what_goes_back)
{
    struct letter l;
    struct dead_letter d;
    struct arena arena;
    struct bytes raw;
    struct wire_properties p;
    struct wire_field f;
    struct message_id id;
    int64_t n;
    arena_init(&arena, 1 << 20);
    open_letter(&l);
    sample_put_text(&l.headers, "mine", "kept");
    sample_put_text(&l.headers, "x-postdate-attempt", "forged");
    wire_put_int64(&l.headers, bytes_of_str("retry-count"), 77);
    wire_put_int64(&l.headers, bytes_of_str("x-delivery-count"), 3);
    wire_put_int64(&l.headers, bytes_of_str("x-opt-delivery-time"), INT64_C(1795334400000));
    put_death(&l.headers, "orders", "rejected", "60000");
    assert_int_equal(read_letter(&l,
                                 (struct wire_properties){.flags = WIRE_PRIORITY | WIRE_USER_ID,
                                                          .priority = 3,
                                                          .user_id = bytes_of_str("alice")},
                                 &d, NULL),
                     0);
    assert_true(message_id_parse(bytes_of_str(ID), &id));
    d.id = id;
    assert_int_equal(dead_letter_return(&d, id, 3, &arena, &raw, NULL), 0);
    assert_int_equal(wire_properties_read(raw, &p, NULL), 0);
    assert_int_equal(p.priority, 3);
    assert_false(p.flags & WIRE_USER_ID);
    assert_true(p.flags & WIRE_EXPIRATION && bytes_equal_str(p.expiration, "60000"));
    assert_true(wire_find(p.headers, "mine", &f) && bytes_equal_str(f.value, "kept"));
    assert_true(wire_find(p.headers, "x-postdate-user-id", &f) && bytes_equal_str(f.value, "alice"));
    assert_true(wire_find(p.headers, "x-postdate-id", &f) && bytes_equal_str(f.value, ID));
    assert_true(wire_find(p.headers, "x-postdate-queue", &f) && bytes_equal_str(f.value, "orders"));
    assert_true(wire_find(p.headers, "x-postdate-attempt", &f) && wire_field_int(&f, &n) && n == 3);
    assert_true(wire_find(p.headers, "retry-count", &f) && wire_field_int(&f, &n) && n == 2);
    assert_false(wire_find(p.headers, "x-delivery-count", &f));
    assert_false(wire_find(p.headers, "x-opt-delivery-time", &f));
    assert_int_equal(count_of_newest(p.headers), 2);
    /* anew: the queue's own entry is gone, the earlier one's is not */
    assert_int_equal(dead_letter_return(&d, id, 1, &arena, &raw, NULL), 0);
    assert_int_equal(wire_properties_read(raw, &p, NULL), 0);
    assert_int_equal(count_of_newest(p.headers), -1);
    close_letter(&l);
    arena_free(&arena);
}

/* What RabbitMQ and we add does not make it another message. */
TEST(test_the_hash)
{
    struct letter l;
    struct dead_letter a, b;
    open_letter(&l);
    sample_put_text(&l.headers, "mine", "1");
    wire_put_int64(&l.headers, bytes_of_str("x-opt-delivery-time"), 1);
    put_death(&l.headers, "orders", "rejected", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &a, NULL), 0);
    buf_reset(&l.headers);
    sample_put_text(&l.headers, "x-first-death-queue", "orders");
    sample_put_text(&l.headers, "x-postdate-id", ID);
    wire_put_int64(&l.headers, bytes_of_str("x-acquired-count"), 1);
    sample_put_text(&l.headers, "mine", "1");
    put_death(&l.headers, "orders", "expired", "1");
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &b, NULL), 0);
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    l.input.body = bytes_of_str("another");
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &b, NULL), 0);
    assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    close_letter(&l);
}

/* The same refusal has the same name, whatever RabbitMQ says of the delivery; the next one another. */
TEST(test_names_of_refusals)
{
    struct letter l;
    struct dead_letter a, b;
    open_letter(&l);
    put_death(&l.headers, "orders", "rejected", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &a, NULL), 0);
    assert_false(a.is_named);
    assert_false(message_id_is_ours(a.refusal));
    wire_put_int64(&l.headers, bytes_of_str("x-delivery-count"), 1);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &b, NULL), 0);
    assert_true(message_id_equal(a.refusal, b.refusal));
    const struct wire_properties p = {.flags = WIRE_MESSAGE_ID, .message_id = bytes_of_str("m")};
    assert_int_equal(read_letter(&l, p, &b, NULL), 0);
    assert_true(b.is_named);
    assert_false(message_id_equal(a.refusal, b.refusal));
    sample_put_text(&l.headers, "x-postdate-id", ID);
    assert_int_equal(read_letter(&l, p, &a, NULL), 0);
    assert_false(message_id_equal(a.refusal, b.refusal));
    sample_put_text(&l.headers, "x-postdate-queue", "orders");
    wire_put_int64(&l.headers, bytes_of_str("x-postdate-attempt"), 2);
    assert_int_equal(read_letter(&l, p, &b, NULL), 0);
    assert_false(message_id_equal(a.refusal, b.refusal));
    close_letter(&l);
}

/* A second message under one id: consumers see that id, and it is counted by another one. */
TEST(test_a_copy)
{
    static const uint8_t random[16] = {1};
    struct letter l;
    struct dead_letter d;
    struct arena arena;
    struct bytes raw, other, queue = bytes_of_str("orders");
    struct wire_properties p;
    struct wire_field f;
    struct message_id copy = dead_letter_random_lineage(random);
    arena_init(&arena, 1 << 20);
    open_letter(&l);
    sample_put_text(&l.headers, "x-postdate-id", ID);
    put_death(&l.headers, "orders", "rejected", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_true(message_id_equal(d.id, d.lineage));
    assert_int_equal(dead_letter_return(&d, d.lineage, 2, &arena, &other, NULL), 0);
    assert_int_equal(dead_letter_return(&d, copy, 2, &arena, &raw, NULL), 0);
    assert_false(dead_letter_is_same_return(raw, other));
    assert_int_equal(wire_properties_read(raw, &p, NULL), 0);
    assert_true(wire_find(p.headers, "x-postdate-id", &f) && bytes_equal_str(f.value, ID));
    buf_reset(&l.headers);
    buf_put_bytes(&l.headers, p.headers);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_true(message_id_equal(d.lineage, copy));
    assert_false(message_id_equal(d.id, copy));
    /* for another queue it means nothing */
    assert_true(bytes_equal(d.queue, queue));
    buf_reset(&l.headers);
    put_death(&l.headers, "others", "rejected", NULL);
    struct wire_cursor c = wire_table(p.headers);
    while (wire_next(&c, &f) == 1)
        if (!bytes_equal_str(f.name, "x-death"))
            buf_put_bytes(&l.headers, f.entry);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_true(message_id_equal(d.lineage, d.id));
    close_letter(&l);
    arena_free(&arena);
}

/* What begins anew loses what we wrote, and nothing that looks like it. */
TEST(test_anew)
{
    static const char trap[] = "\x12x-postdate-attemptI\0\0\0\7";
    struct letter l;
    struct dead_letter d;
    struct arena arena;
    struct bytes raw, anew;
    struct wire_properties p;
    struct wire_field f;
    int64_t n = 0;
    arena_init(&arena, 1 << 20);
    open_letter(&l);
    wire_put_string(&l.headers, bytes_of_str("a"), bytes_of(trap, sizeof trap - 1));
    sample_put_text(&l.headers, "x-postdate-id", ID);
    wire_put_int64(&l.headers, bytes_of_str("retry-count"), 7);
    put_death(&l.headers, "orders", "rejected", NULL);
    assert_int_equal(read_letter(&l, (struct wire_properties){0}, &d, NULL), 0);
    assert_int_equal(dead_letter_return(&d, d.lineage, 5, &arena, &raw, NULL), 0);
    assert_int_equal(dead_letter_anew(raw, &arena, &anew, NULL), 0);
    assert_int_equal(wire_properties_read(anew, &p, NULL), 0);
    assert_true(wire_find(p.headers, "a", &f) && bytes_equal(f.value, bytes_of(trap, sizeof trap - 1)));
    assert_true(wire_find(p.headers, "x-postdate-attempt", &f) && wire_field_int(&f, &n) && n == 1);
    assert_true(wire_find(p.headers, "retry-count", &f) && wire_field_int(&f, &n) && n == 0);
    assert_true(wire_find(p.headers, "x-postdate-queue", &f) && bytes_equal_str(f.value, "orders"));
    assert_true(wire_find(p.headers, "x-postdate-id", &f) && bytes_equal_str(f.value, ID));
    assert_int_equal(count_of_newest(p.headers), -1);
    close_letter(&l);
    arena_free(&arena);
}
