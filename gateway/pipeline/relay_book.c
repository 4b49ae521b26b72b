#include "gateway/pipeline/relay_book.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX
#define FIRST_CAPACITY 1024u
#define SCAN_MS 500 /* between two looks for what has become late */

enum state { WAITS, SENT, SETTLING, LOOK_UP };

struct relay_entry {
    struct message_id id;
    uint64_t tag;
    int64_t again_ms; /* monotonic: not asked before */
    uint32_t session; /* of the tag */
    uint32_t next;    /* in its bucket, or among the free ones */
    uint8_t state;
    bool asked;
    bool used;
};

int relay_book_open(struct relay_book *b, int64_t grace_ms)
{
    *b = (struct relay_book){.free = NOWHERE, .session = 1, .scanned_ms = -SCAN_MS, .grace_ms = grace_ms};
    pthread_mutex_init(&b->lock, NULL);
    return 0;
}

void relay_book_close(struct relay_book *b)
{
    free(b->entries);
    free(b->buckets);
    free(b->done);
    pthread_mutex_destroy(&b->lock);
}

/* The end of an id is random. */
static uint32_t *bucket_of(const struct relay_book *b, struct message_id id)
{
    uint32_t hash;
    memcpy(&hash, id.b + sizeof id.b - sizeof hash, sizeof hash);
    return &b->buckets[hash & (b->capacity - 1)];
}

static void put_into_bucket(struct relay_book *b, uint32_t i)
{
    uint32_t *bucket = bucket_of(b, b->entries[i].id);
    b->entries[i].next = *bucket;
    *bucket = i;
}

/* Room for at least one more. */
static bool grow(struct relay_book *b)
{
    if (b->free != NOWHERE)
        return true;
    uint32_t capacity = b->capacity ? b->capacity * 2 : FIRST_CAPACITY;
    struct relay_entry *entries =
        capacity > b->capacity ? realloc(b->entries, capacity * sizeof *entries) : NULL;
    if (!entries)
        return false;
    b->entries = entries;
    uint32_t *buckets = realloc(b->buckets, capacity * sizeof *buckets);
    if (!buckets)
        return false;
    b->buckets = buckets;
    for (uint32_t i = b->capacity; i < capacity; i++)
        b->entries[i] = (struct relay_entry){.next = i + 1 < capacity ? i + 1 : NOWHERE};
    b->free = b->capacity;
    b->capacity = capacity;
    memset(b->buckets, 0xff, capacity * sizeof *buckets);
    for (uint32_t i = 0; i < b->free; i++)
        if (b->entries[i].used)
            put_into_bucket(b, i);
    return true;
}

static struct relay_entry *find(const struct relay_book *b, struct message_id id)
{
    if (b->count == 0)
        return NULL;
    for (uint32_t i = *bucket_of(b, id); i != NOWHERE; i = b->entries[i].next)
        if (message_id_equal(b->entries[i].id, id))
            return &b->entries[i];
    return NULL;
}

static struct relay_entry *add(struct relay_book *b, struct message_id id)
{
    if (!grow(b))
        return NULL;
    uint32_t i = b->free;
    b->free = b->entries[i].next;
    b->entries[i] = (struct relay_entry){.id = id, .used = true};
    put_into_bucket(b, i);
    b->count++;
    return &b->entries[i];
}

static void set_state(struct relay_book *b, struct relay_entry *e, enum state state)
{
    b->settling += state == SETTLING;
    b->settling -= e->state == SETTLING;
    b->look_ups += state == LOOK_UP;
    b->look_ups -= e->state == LOOK_UP;
    e->state = (uint8_t)state;
}

static void drop(struct relay_book *b, struct relay_entry *e)
{
    uint32_t i = (uint32_t)(e - b->entries);
    uint32_t *at = bucket_of(b, e->id);
    while (*at != i)
        at = &b->entries[*at].next;
    *at = e->next;
    set_state(b, e, WAITS);
    *e = (struct relay_entry){.next = b->free};
    b->free = i;
    b->count--;
}

/* Without memory for it the tag is not acknowledged: the message comes again when the connection ends. */
static void note_done(struct relay_book *b, uint64_t tag)
{
    if (b->done_count == b->done_capacity) {
        size_t capacity = b->done_capacity ? b->done_capacity * 2 : FIRST_CAPACITY;
        uint64_t *done = realloc(b->done, capacity * sizeof *done);
        if (!done)
            return;
        b->done = done;
        b->done_capacity = capacity;
    }
    b->done[b->done_count++] = tag;
}

void relay_book_connected(struct relay_book *b)
{
    pthread_mutex_lock(&b->lock);
    b->session++;
    b->done_count = 0;
    pthread_mutex_unlock(&b->lock);
}

/* It is here already. */
static enum relay_taken take_again(struct relay_book *b, struct relay_entry *e, uint64_t tag)
{
    if (e->session == b->session)
        return RELAY_COPY;
    e->session = b->session;
    e->tag = tag;
    if (e->state == WAITS)
        set_state(b, e, LOOK_UP);
    return RELAY_KNOWN;
}

enum relay_taken relay_book_take(struct relay_book *b, struct message_id id, uint64_t tag, bool look_up)
{
    pthread_mutex_lock(&b->lock);
    struct relay_entry *e = find(b, id);
    enum relay_taken taken = RELAY_NO_ROOM;
    if (e) {
        taken = take_again(b, e, tag);
    } else if ((e = add(b, id)) != NULL) {
        e->tag = tag;
        e->session = b->session;
        set_state(b, e, look_up ? LOOK_UP : WAITS);
        taken = look_up ? RELAY_LOOKS_UP : RELAY_FRESH;
    }
    pthread_mutex_unlock(&b->lock);
    return taken;
}

static bool is_late(const struct relay_book *b, const struct relay_entry *e, int64_t now_ms)
{
    return now_ms > message_id_due_ms(e->id) + b->grace_ms / 2;
}

enum relay_verdict relay_book_ask(struct relay_book *b, struct message_id id, int64_t now_ms)
{
    enum relay_verdict v = RELAY_FORGET;
    pthread_mutex_lock(&b->lock);
    struct relay_entry *e = find(b, id);
    if (e && e->state == WAITS && (e->session != b->session || is_late(b, e, now_ms)))
        set_state(b, e, LOOK_UP);
    else if (e && e->state == WAITS)
        v = RELAY_PUBLISH;
    else if (e && e->state == SENT)
        v = e->asked || is_late(b, e, now_ms) ? RELAY_RETURN : RELAY_PUBLISH;
    pthread_mutex_unlock(&b->lock);
    return v;
}

static void move_to(struct relay_book *b, struct message_id id, enum state state)
{
    pthread_mutex_lock(&b->lock);
    struct relay_entry *e = find(b, id);
    if (e)
        set_state(b, e, state);
    pthread_mutex_unlock(&b->lock);
}

void relay_book_sent(struct relay_book *b, struct message_id id)
{
    move_to(b, id, SENT);
}

void relay_book_settling(struct relay_book *b, struct message_id id)
{
    move_to(b, id, SETTLING);
}

void relay_book_done(struct relay_book *b, struct message_id id)
{
    pthread_mutex_lock(&b->lock);
    struct relay_entry *e = find(b, id);
    if (e && e->session == b->session)
        note_done(b, e->tag);
    if (e)
        drop(b, e);
    pthread_mutex_unlock(&b->lock);
}

size_t relay_book_questions(struct relay_book *b, int64_t now_ms, int64_t clock_ms,
                            struct relay_question *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&b->lock);
    bool scan = b->look_ups > 0 || (b->count > b->settling && clock_ms - b->scanned_ms >= SCAN_MS);
    if (scan)
        b->scanned_ms = clock_ms;
    for (uint32_t i = 0; scan && i < b->capacity && n < max; i++) {
        struct relay_entry *e = &b->entries[i];
        if (!e->used || e->asked || e->state == SETTLING || e->again_ms > clock_ms)
            continue;
        if (e->state != LOOK_UP && !is_late(b, e, now_ms))
            continue;
        if (e->state == WAITS)
            set_state(b, e, LOOK_UP);
        e->asked = true;
        out[n++] = (struct relay_question){.id = e->id, .sent = e->state == SENT};
    }
    pthread_mutex_unlock(&b->lock);
    return n;
}

void relay_book_again(struct relay_book *b, const struct relay_question *q, int64_t at_ms)
{
    pthread_mutex_lock(&b->lock);
    struct relay_entry *e = find(b, q->id);
    if (e) {
        e->asked = false;
        e->again_ms = at_ms;
    }
    pthread_mutex_unlock(&b->lock);
}

int64_t relay_book_low_ms(struct relay_book *b)
{
    int64_t low_ms = INT64_MAX;
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->capacity && b->count > 0; i++) {
        int64_t due_ms = message_id_due_ms(b->entries[i].id);
        if (b->entries[i].used && due_ms < low_ms)
            low_ms = due_ms;
    }
    pthread_mutex_unlock(&b->lock);
    return low_ms;
}

size_t relay_book_count(struct relay_book *b, size_t *settling)
{
    pthread_mutex_lock(&b->lock);
    size_t count = b->count;
    *settling = b->settling;
    pthread_mutex_unlock(&b->lock);
    return count;
}

size_t relay_book_take_done(struct relay_book *b, uint64_t *out, size_t max)
{
    pthread_mutex_lock(&b->lock);
    size_t n = b->done_count < max ? b->done_count : max;
    if (n > 0) {
        memcpy(out, b->done, n * sizeof *out);
        memmove(b->done, b->done + n, (b->done_count - n) * sizeof *out);
    }
    b->done_count -= n;
    pthread_mutex_unlock(&b->lock);
    return n;
}
