/* The entries of the relay's book, by id. */
#include "gateway/deliver/exit_table.h"
#include "core/base/clock.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/guard.h"

#include <stdlib.h>
#include <string.h>

enum state { WAITS, SENT, SETTLING, LOOK_UP };

enum proof { PROOF_NONE, PROOF_UNDER_WAY, PROOF_THERE };

struct relay_proof {
    uint64_t tag;
    uint32_t session; /* of the tag */
    uint32_t open;    /* how many of its ids are not settled; with the last one it goes */
};

/* There are no gaps between them: the last one takes the place of one that goes. */
struct relay_entry {
    struct message_id id;
    struct relay_proof *came; /* the proof that says that it was delivered, if this gateway took it */
    struct inflight *kept;    /* its content, for a database that may not know it; owned */
    uint64_t tag;
    int64_t again_ms;     /* monotonic: not asked before */
    int64_t delivered_ms; /* monotonic; 0: it was not, or by nobody knows whom */
    uint32_t session;     /* of the tag */
    uint32_t next;        /* in its bucket */
    uint8_t state;
    uint8_t proof; /* in the exit queue, that it was delivered */
    bool deferred;
    bool at_risk; /* counted as such */
    bool asked;
    bool whole; /* it came with its content */
};

#define NOWHERE UINT32_MAX
#define FIRST_CAPACITY 1024u

/* The end of an id is random. */
static uint32_t *bucket_of(const struct relay_book *book, struct message_id id)
{
    uint32_t hash;
    memcpy(&hash, id.b + sizeof id.b - sizeof hash, sizeof hash);
    return &book->buckets[hash & (book->capacity - 1)];
}

static void put_into_bucket(struct relay_book *book, uint32_t i)
{
    uint32_t *bucket = bucket_of(book, book->entries[i].id);
    book->entries[i].next = *bucket;
    *bucket = i;
}

/* Room for at least one more. */
static bool grow_table(struct relay_book *book)
{
    if (book->count < book->capacity)
        return true;
    uint32_t capacity = book->capacity ? book->capacity * 2 : FIRST_CAPACITY;
    struct relay_entry *entries =
        capacity > book->capacity ? realloc(book->entries, capacity * sizeof *entries) : NULL;
    if (!entries)
        return false;
    book->entries = entries;
    uint32_t *buckets = realloc(book->buckets, capacity * sizeof *buckets);
    if (!buckets)
        return false;
    book->buckets = buckets;
    book->capacity = capacity;
    memset(book->buckets, 0xff, capacity * sizeof *buckets);
    for (uint32_t i = 0; i < book->count; i++)
        put_into_bucket(book, i);
    return true;
}

/* exit_table.c. What they return holds until the next one is added or removed. NULL: it is not there. */
static struct relay_entry *relay_table_find(const struct relay_book *book, struct message_id id)
{
    if (book->count == 0)
        return NULL;
    for (uint32_t i = *bucket_of(book, id); i != NOWHERE; i = book->entries[i].next)
        if (message_id_equal(book->entries[i].id, id))
            return &book->entries[i];
    return NULL;
}

/* One that is not there yet, with all else 0. NULL: no memory. */
static struct relay_entry *relay_table_add(struct relay_book *book, struct message_id id)
{
    if (!grow_table(book))
        return NULL;
    uint32_t i = book->count++;
    book->entries[i] = (struct relay_entry){.id = id};
    put_into_bucket(book, i);
    return &book->entries[i];
}

static uint32_t *link_in_bucket(const struct relay_book *book, uint32_t i)
{
    uint32_t *at = bucket_of(book, book->entries[i].id);
    while (*at != i)
        at = &book->entries[*at].next;
    return at;
}

static void relay_table_remove(struct relay_book *book, struct relay_entry *entry)
{
    uint32_t i = (uint32_t)(entry - book->entries), last = book->count - 1;
    *link_in_bucket(book, i) = entry->next;
    if (i != last)
        *link_in_bucket(book, last) = i;
    *entry = book->entries[last];
    book->count--;
}

#define DONE_CAPACITY 1024u
#define SCAN_MS 500 /* between two looks for what has become late */

void relay_book_init(struct relay_book *book, int64_t grace_ms)
{
    *book = (struct relay_book){
        .lock = PTHREAD_MUTEX_INITIALIZER, .session = 1, .scanned_ms = -SCAN_MS, .grace_ms = grace_ms};
}

static void set_state(struct relay_book *book, struct relay_entry *entry, enum state state)
{
    book->settling += (uint32_t)(state == SETTLING) - (entry->state == SETTLING);
    book->look_ups += (uint32_t)(state == LOOK_UP) - (entry->state == LOOK_UP);
    entry->state = (uint8_t)state;
}

static void set_proof(struct relay_book *book, struct relay_entry *entry, enum proof proof)
{
    book->proven += (uint32_t)(proof == PROOF_THERE) - (entry->proof == PROOF_THERE);
    entry->proof = (uint8_t)proof;
}

/* After each change of what it depends on. */
static void count_risk(struct relay_book *book, struct relay_entry *entry)
{
    bool at_risk = entry->state == SETTLING && entry->delivered_ms != 0 && entry->proof != PROOF_THERE &&
                   !entry->deferred;
    atomic_fetch_add(&book->at_risk, at_risk - entry->at_risk);
    entry->at_risk = at_risk;
}

/* Without memory for it the tag is not acknowledged: the message comes again when the connection ends. */
static void note_done(struct relay_book *book, uint64_t tag)
{
    if (book->done_count == book->done_capacity) {
        size_t capacity = book->done_capacity ? book->done_capacity * 2 : DONE_CAPACITY;
        uint64_t *done = realloc(book->done, capacity * sizeof *done);
        if (!done)
            return;
        book->done = done;
        book->done_capacity = capacity;
    }
    book->done[book->done_count++] = tag;
}

static void leave_proof(struct relay_book *book, struct relay_entry *entry)
{
    struct relay_proof *proof = entry->came;
    entry->came = NULL;
    if (!proof || --proof->open > 0)
        return;
    if (proof->session == book->session)
        note_done(book, proof->tag);
    free(proof);
    book->proofs--;
}

void relay_book_close(struct relay_book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        leave_proof(book, &book->entries[i]);
        inflight_free(book->entries[i].kept);
    }
    free(book->entries);
    free(book->buckets);
    free(book->done);
}

/* A look through all begins where the one before has ended. */
static struct relay_entry *next_entry(struct relay_book *book, uint32_t *at)
{
    book->looked_at++;
    *at = *at < book->count ? *at : 0;
    return &book->entries[(*at)++];
}

void relay_book_disconnected(struct relay_book *book)
{
    GUARD(&book->lock);
    book->session++;
    book->done_count = 0;
}

static bool has_proof_here(const struct relay_book *book, const struct relay_entry *entry)
{
    return entry->came && entry->came->session == book->session;
}

static bool is_late(const struct relay_book *book, int64_t due_ms, int64_t now_ms)
{
    return now_ms > due_ms + book->grace_ms / 2;
}

/* Can anybody have taken it for lost? It came for the first time. */
static bool is_doubtful(const struct relay_book *book, int64_t due_ms, int64_t now_ms)
{
    bool counted = book->instance != 0 && book->instance == book->counted_as;
    return is_late(book, due_ms, now_ms) && (now_ms == INT64_MAX || !counted || due_ms < book->unrescued_ms);
}

/* Once it was sent, it must not fill the prefetch any longer. */
static bool must_look_up(const struct relay_book *book, const struct relay_entry *entry, int64_t now_ms)
{
    int64_t due_ms = message_id_due_ms(entry->id);
    return entry->state == SENT ? is_late(book, due_ms, now_ms) : is_doubtful(book, due_ms, now_ms);
}

/* For the look-up, also while the database is asked about it: an answer is then "not known", and it is asked
 * again. What is sent and asked about cannot be: its row may be claimed. */
static void keep(struct relay_book *book, struct relay_entry *entry, struct inflight **content)
{
    if (!content || !*content || entry->kept || entry->state == SETTLING ||
        (entry->state == SENT && entry->asked))
        return;
    set_state(book, entry, LOOK_UP);
    entry->kept = *content;
    *content = NULL;
}

enum relay_taken relay_book_take(struct relay_book *book, const struct relay_delivery *d, int64_t now_ms,
                                 struct inflight **content)
{
    GUARD(&book->lock);
    struct relay_entry *known = relay_table_find(book, d->id),
                       *entry = known ? known : relay_table_add(book, d->id);
    if (!entry)
        return RELAY_NO_ROOM;
    if (known && (known->session == book->session || has_proof_here(book, known)))
        return RELAY_COPY;
    bool look_up = d->look_up_ms || is_doubtful(book, message_id_due_ms(d->id), now_ms);
    entry->session = book->session;
    entry->tag = d->tag;
    entry->whole = d->whole;
    if (!known)
        entry->again_ms = d->look_up_ms;
    if (entry->state == WAITS && (known || look_up))
        set_state(book, entry, LOOK_UP);
    if (entry->state == LOOK_UP)
        keep(book, entry, content);
    return known ? RELAY_KNOWN : look_up ? RELAY_LOOKS_UP : RELAY_FRESH;
}

static enum relay_verdict judge(struct relay_book *book, struct relay_entry *entry, int64_t now_ms)
{
    if (!entry || (entry->state != WAITS && entry->state != SENT))
        return RELAY_FORGET;
    bool late = entry->session != book->session || must_look_up(book, entry, now_ms);
    if (entry->state == SENT)
        return entry->asked || late ? RELAY_RETURN : RELAY_PUBLISH;
    if (!late && is_late(book, message_id_due_ms(entry->id), now_ms)) /* so long its confirm is waited for */
        entry->again_ms = clock_monotonic_ms() + book->grace_ms / 2;
    if (!late)
        return RELAY_PUBLISH;
    set_state(book, entry, LOOK_UP);
    return RELAY_FORGET;
}

enum relay_verdict relay_book_ask(struct relay_book *book, struct message_id id, int64_t now_ms,
                                  struct inflight **content)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    enum relay_verdict v = judge(book, entry, now_ms);
    if (entry && v != RELAY_PUBLISH)
        keep(book, entry, content);
    return v;
}

static void move_entry(struct relay_book *book, struct message_id id, enum state state, int64_t delivered_ms)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    if (entry) {
        set_state(book, entry, state);
        entry->delivered_ms = delivered_ms;
        count_risk(book, entry);
    }
}

void relay_book_sent(struct relay_book *book, struct message_id id)
{
    move_entry(book, id, SENT, 0);
}

void relay_book_settling(struct relay_book *book, struct message_id id, int64_t delivered_ms)
{
    move_entry(book, id, SETTLING, delivered_ms);
}

void relay_book_deferred(struct relay_book *book, struct message_id id)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    if (entry) {
        entry->deferred = true;
        count_risk(book, entry);
    }
}

/* What it has of the exit queue is acknowledged. */
static void give_back_tag(struct relay_book *book, struct relay_entry *entry)
{
    if (entry->session == book->session)
        note_done(book, entry->tag);
    entry->session = 0;
}

size_t relay_book_unproven(struct relay_book *book, int64_t before_ms, struct message_id *out, size_t max)
{
    size_t n = 0;
    GUARD(&book->lock);
    for (uint32_t i = 0; book->settling > book->proven && i < book->count && n < max; i++) {
        struct relay_entry *entry = next_entry(book, &book->unproven_at);
        if (entry->state != SETTLING || entry->proof != PROOF_NONE || entry->delivered_ms == 0 ||
            entry->delivered_ms > before_ms)
            continue;
        entry->proof = PROOF_UNDER_WAY;
        out[n++] = entry->id;
    }
    return n;
}

void relay_book_proven(struct relay_book *book, const struct message_id *ids, size_t n, bool ok)
{
    GUARD(&book->lock);
    for (size_t i = 0; i < n; i++) {
        struct relay_entry *entry = relay_table_find(book, ids[i]);
        if (!entry || entry->proof != PROOF_UNDER_WAY) /* it is settled, or has come back to this gateway */
            continue;
        set_proof(book, entry, ok ? PROOF_THERE : PROOF_NONE);
        count_risk(book, entry);
        if (ok)
            give_back_tag(book, entry);
    }
}

/* The proof takes its place, unless one is here already. True: nobody is settling it. */
static bool join_proof(struct relay_book *book, struct relay_entry *entry, struct relay_proof *proof)
{
    bool is_settling = entry->state == SETTLING;
    if (entry->state == SENT || has_proof_here(book, entry))
        return false;
    give_back_tag(book, entry);
    leave_proof(book, entry);
    entry->came = proof;
    proof->open++;
    set_proof(book, entry, PROOF_THERE);
    set_state(book, entry, SETTLING);
    count_risk(book, entry);
    return !is_settling;
}

bool relay_book_take_proof(struct relay_book *book, const struct message_id *ids, size_t n, uint64_t tag,
                           bool *fresh)
{
    struct relay_proof *proof = malloc(sizeof *proof);
    if (!proof)
        return false;
    bool room = true;
    GUARD(&book->lock);
    book->proofs++;
    *proof = (struct relay_proof){.tag = tag, .session = book->session, .open = 1};
    for (size_t i = 0; i < n && room; i++) {
        struct relay_entry *entry = relay_table_find(book, ids[i]);
        if (!entry)
            entry = relay_table_add(book, ids[i]);
        room = entry != NULL;
        fresh[i] = room && join_proof(book, entry, proof);
    }
    leave_proof(book, &(struct relay_entry){.came = proof}); /* the one that kept it from going at once */
    return room;
}

bool relay_book_has_proof(struct relay_book *book, struct message_id id)
{
    GUARD(&book->lock);
    const struct relay_entry *entry = relay_table_find(book, id);
    return entry && entry->came;
}

static void remove_entry(struct relay_book *book, struct relay_entry *entry)
{
    give_back_tag(book, entry);
    set_state(book, entry, WAITS);
    set_proof(book, entry, PROOF_NONE);
    leave_proof(book, entry);
    inflight_free(entry->kept);
    count_risk(book, entry);
    relay_table_remove(book, entry);
}

static void end_message(struct relay_book *book, struct message_id id, bool unless_proven)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    if (entry && !(unless_proven && entry->came))
        remove_entry(book, entry);
}

void relay_book_done(struct relay_book *book, struct message_id id)
{
    end_message(book, id, false);
}

void relay_book_answer(struct relay_book *book, struct message_id id)
{
    end_message(book, id, true);
}

size_t relay_book_questions(struct relay_book *book, int64_t now_ms, int64_t clock_ms,
                            struct relay_question *out, size_t max)
{
    size_t n = 0;
    GUARD(&book->lock);
    bool scan =
        book->look_ups > 0 || (book->count > book->settling && clock_ms - book->scanned_ms >= SCAN_MS);
    if (scan)
        book->scanned_ms = clock_ms;
    for (uint32_t i = 0; scan && i < book->count && n < max; i++) {
        struct relay_entry *entry = next_entry(book, &book->questions_at);
        if (entry->asked || entry->state == SETTLING || entry->again_ms > clock_ms ||
            (entry->state != LOOK_UP && !must_look_up(book, entry, now_ms)))
            continue;
        if (entry->state == WAITS)
            set_state(book, entry, LOOK_UP);
        entry->asked = true;
        out[n++] =
            (struct relay_question){.id = entry->id, .kept = entry->kept, .sent = entry->state == SENT};
        entry->kept = NULL;
    }
    return n;
}

void relay_book_again(struct relay_book *book, const struct relay_question *q, int64_t at_ms)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, q->id);
    inflight_free(entry && !entry->kept ? NULL : q->kept);
    if (entry) {
        entry->kept = entry->kept ? entry->kept : q->kept;
        entry->asked = false;
        entry->again_ms = at_ms;
    }
}

enum relay_unknown relay_book_unknown(struct relay_book *book, struct message_id id, int64_t at_ms)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    if (!entry || entry->came)
        return RELAY_UNKNOWN_ASKED;
    bool comes_again = entry->whole && entry->session == book->session;
    if (!entry->kept && entry->state == LOOK_UP && !comes_again) {
        remove_entry(book, entry);
        return RELAY_UNKNOWN_ENDED;
    }
    entry->asked = false;
    entry->again_ms = entry->kept ? 0 : at_ms;
    return entry->kept || entry->state != LOOK_UP ? RELAY_UNKNOWN_ASKED : RELAY_UNKNOWN_WANTED;
}

bool relay_book_look_up(struct relay_book *book, struct message_id id)
{
    GUARD(&book->lock);
    struct relay_entry *entry = relay_table_find(book, id);
    if (!entry || entry->came)
        return false;
    set_state(book, entry, LOOK_UP);
    entry->delivered_ms = entry->again_ms = 0;
    entry->asked = false;
    count_risk(book, entry);
    return true;
}

static int64_t low_ms_of(const struct relay_book *book)
{
    int64_t low_ms = INT64_MAX;
    for (uint32_t i = 0; i < book->count; i++)
        if (message_id_due_ms(book->entries[i].id) < low_ms)
            low_ms = message_id_due_ms(book->entries[i].id);
    return low_ms;
}

int64_t relay_book_low_ms(struct relay_book *book)
{
    GUARD(&book->lock);
    return low_ms_of(book);
}

static void raise_unrescued(struct relay_book *book, int64_t low_ms)
{
    if (low_ms - book->grace_ms > book->unrescued_ms)
        book->unrescued_ms = low_ms - book->grace_ms;
}

int64_t relay_book_begin_note(struct relay_book *book, int64_t most_ms)
{
    GUARD(&book->lock);
    int64_t low_ms = low_ms_of(book);
    low_ms = low_ms < most_ms ? low_ms : most_ms;
    raise_unrescued(book, low_ms);
    return low_ms;
}

void relay_book_end_note(struct relay_book *book, int32_t instance, int64_t now_ms)
{
    GUARD(&book->lock);
    if (instance == book->counted_as)
        return;
    bool clock_known = now_ms != INT64_MAX;
    if (clock_known)
        raise_unrescued(book, now_ms);
    book->counted_as = clock_known ? instance : 0;
}

void relay_book_set_instance(struct relay_book *book, int32_t instance)
{
    GUARD(&book->lock);
    book->instance = instance;
}

size_t relay_book_count(struct relay_book *book, bool away, size_t *waiting)
{
    GUARD(&book->lock);
    *waiting = book->settling - book->proven + book->proofs + (away ? book->look_ups : 0);
    return book->count;
}

size_t relay_book_take_done(struct relay_book *book, uint64_t *out, size_t max)
{
    GUARD(&book->lock);
    size_t n = book->done_count < max ? book->done_count : max;
    if (n > 0) {
        memcpy(out, book->done, n * sizeof *out);
        memmove(book->done, book->done + n, (book->done_count - n) * sizeof *out);
    }
    book->done_count -= n;
    return n;
}
