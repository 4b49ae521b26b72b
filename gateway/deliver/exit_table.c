/* The exit table: its entries by id, the proofs, the look-ups, and the tags to acknowledge. */
#include "gateway/deliver/exit_table.h"
#include "core/base/clock.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/guard.h"

#include <stdlib.h>
#include <string.h>

enum state { WAITS, SENT, SETTLING, LOOK_UP };

enum proof { PROOF_NONE, PROOF_UNDER_WAY, PROOF_THERE };

struct exit_proof {
    uint64_t tag;
    uint32_t session; /* of the tag */
    uint32_t open;    /* how many of its ids are not settled; with the last one it goes */
};

/* There are no gaps between them: the last one takes the place of one that goes. */
struct exit_entry {
    struct message_id id;
    struct exit_proof *came; /* the proof that says that it was delivered, if this gateway took it */
    struct inflight *kept;   /* its content, for a database that may not know it; owned */
    uint64_t tag;
    int64_t again_ms;     /* monotonic: not asked before */
    int64_t delivered_ms; /* monotonic; 0: it was not, or it is unknown */
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
static uint32_t *bucket_of(const struct exit_table *table, struct message_id id)
{
    uint32_t hash;
    memcpy(&hash, id.b + sizeof id.b - sizeof hash, sizeof hash);
    return &table->buckets[hash & (table->capacity - 1)];
}

static void put_into_bucket(struct exit_table *table, uint32_t i)
{
    uint32_t *bucket = bucket_of(table, table->entries[i].id);
    table->entries[i].next = *bucket;
    *bucket = i;
}

/* Room for at least one more. */
static bool grow_table(struct exit_table *table)
{
    if (table->count < table->capacity)
        return true;
    uint32_t capacity = table->capacity ? table->capacity * 2 : FIRST_CAPACITY;
    struct exit_entry *entries =
        capacity > table->capacity ? realloc(table->entries, capacity * sizeof *entries) : NULL;
    if (!entries)
        return false;
    table->entries = entries;
    uint32_t *buckets = realloc(table->buckets, capacity * sizeof *buckets);
    if (!buckets)
        return false;
    table->buckets = buckets;
    table->capacity = capacity;
    memset(table->buckets, 0xff, capacity * sizeof *buckets);
    for (uint32_t i = 0; i < table->count; i++)
        put_into_bucket(table, i);
    return true;
}

/* What it returns holds until the next one is added or removed. NULL: it is not there. */
static struct exit_entry *find_in_table(const struct exit_table *table, struct message_id id)
{
    if (table->count == 0)
        return NULL;
    for (uint32_t i = *bucket_of(table, id); i != NOWHERE; i = table->entries[i].next)
        if (message_id_equal(table->entries[i].id, id))
            return &table->entries[i];
    return NULL;
}

/* One that is not there yet, with all else 0. NULL: no memory. */
static struct exit_entry *add_in_table(struct exit_table *table, struct message_id id)
{
    if (!grow_table(table))
        return NULL;
    uint32_t i = table->count++;
    table->entries[i] = (struct exit_entry){.id = id};
    put_into_bucket(table, i);
    return &table->entries[i];
}

static uint32_t *link_in_bucket(const struct exit_table *table, uint32_t i)
{
    uint32_t *at = bucket_of(table, table->entries[i].id);
    while (*at != i)
        at = &table->entries[*at].next;
    return at;
}

static void remove_in_table(struct exit_table *table, struct exit_entry *entry)
{
    uint32_t i = (uint32_t)(entry - table->entries), last = table->count - 1;
    *link_in_bucket(table, i) = entry->next;
    if (i != last)
        *link_in_bucket(table, last) = i;
    *entry = table->entries[last];
    table->count--;
}

#define DONE_CAPACITY 1024u
#define SCAN_MS 500 /* between two looks for what has become late */

void exit_table_init(struct exit_table *table, int64_t grace_ms)
{
    *table = (struct exit_table){
        .lock = PTHREAD_MUTEX_INITIALIZER, .session = 1, .scanned_ms = -SCAN_MS, .grace_ms = grace_ms};
}

static void set_state(struct exit_table *table, struct exit_entry *entry, enum state state)
{
    table->settling += (uint32_t)(state == SETTLING) - (entry->state == SETTLING);
    table->look_ups += (uint32_t)(state == LOOK_UP) - (entry->state == LOOK_UP);
    entry->state = (uint8_t)state;
}

static void set_proof(struct exit_table *table, struct exit_entry *entry, enum proof proof)
{
    table->proven += (uint32_t)(proof == PROOF_THERE) - (entry->proof == PROOF_THERE);
    entry->proof = (uint8_t)proof;
}

/* After each change of what it depends on. */
static void count_risk(struct exit_table *table, struct exit_entry *entry)
{
    bool at_risk = entry->state == SETTLING && entry->delivered_ms != 0 && entry->proof != PROOF_THERE &&
                   !entry->deferred;
    atomic_fetch_add(&table->at_risk, at_risk - entry->at_risk);
    entry->at_risk = at_risk;
}

/* Without memory for it the tag is not acknowledged: the message comes again when the connection ends. */
static void note_done(struct exit_table *table, uint64_t tag)
{
    if (table->done_count == table->done_capacity) {
        size_t capacity = table->done_capacity ? table->done_capacity * 2 : DONE_CAPACITY;
        uint64_t *done = realloc(table->done, capacity * sizeof *done);
        if (!done)
            return;
        table->done = done;
        table->done_capacity = capacity;
    }
    table->done[table->done_count++] = tag;
}

static void leave_proof(struct exit_table *table, struct exit_entry *entry)
{
    struct exit_proof *proof = entry->came;
    entry->came = NULL;
    if (!proof || --proof->open > 0)
        return;
    if (proof->session == table->session)
        note_done(table, proof->tag);
    free(proof);
    table->proofs--;
}

void exit_table_close(struct exit_table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        leave_proof(table, &table->entries[i]);
        inflight_free(table->entries[i].kept);
    }
    free(table->entries);
    free(table->buckets);
    free(table->done);
}

/* A look through all begins where the one before has ended. */
static struct exit_entry *next_entry(struct exit_table *table, uint32_t *at)
{
    table->looked_at++;
    *at = *at < table->count ? *at : 0;
    return &table->entries[(*at)++];
}

void exit_table_disconnected(struct exit_table *table)
{
    GUARD(&table->lock);
    table->session++;
    table->done_count = 0;
}

static bool has_proof_here(const struct exit_table *table, const struct exit_entry *entry)
{
    return entry->came && entry->came->session == table->session;
}

static bool is_late(const struct exit_table *table, int64_t due_ms, int64_t now_ms)
{
    return now_ms > due_ms + table->grace_ms / 2;
}

/* May a gateway have rescued it? It was received for the first time. */
static bool is_doubtful(const struct exit_table *table, int64_t due_ms, int64_t now_ms)
{
    bool counted = table->instance != 0 && table->instance == table->counted_as;
    return is_late(table, due_ms, now_ms) &&
           (now_ms == INT64_MAX || !counted || due_ms < table->unrescued_ms);
}

/* Once it was sent, it must not fill the prefetch any longer. */
static bool must_look_up(const struct exit_table *table, const struct exit_entry *entry, int64_t now_ms)
{
    int64_t due_ms = message_id_due_ms(entry->id);
    return entry->state == SENT ? is_late(table, due_ms, now_ms) : is_doubtful(table, due_ms, now_ms);
}

/* For the look-up, also while the database is asked about it: an answer is then "not known", and it is asked
 * again. What is sent and asked about cannot be: its row may be claimed. */
static void keep(struct exit_table *table, struct exit_entry *entry, struct inflight **content)
{
    if (!content || !*content || entry->kept || entry->state == SETTLING ||
        (entry->state == SENT && entry->asked))
        return;
    set_state(table, entry, LOOK_UP);
    entry->kept = *content;
    *content = NULL;
}

enum exit_inserted exit_table_insert(struct exit_table *table, const struct exit_delivery *d, int64_t now_ms,
                                     struct inflight **content)
{
    GUARD(&table->lock);
    struct exit_entry *known = find_in_table(table, d->id),
                      *entry = known ? known : add_in_table(table, d->id);
    if (!entry)
        return EXIT_NO_ROOM;
    if (known && (known->session == table->session || has_proof_here(table, known)))
        return EXIT_COPY;
    bool look_up = d->look_up_ms || is_doubtful(table, message_id_due_ms(d->id), now_ms);
    entry->session = table->session;
    entry->tag = d->tag;
    entry->whole = d->whole;
    if (!known)
        entry->again_ms = d->look_up_ms;
    if (entry->state == WAITS && (known || look_up))
        set_state(table, entry, LOOK_UP);
    if (entry->state == LOOK_UP)
        keep(table, entry, content);
    return known ? EXIT_KNOWN : look_up ? EXIT_LOOKS_UP : EXIT_FRESH;
}

static enum exit_verdict judge(struct exit_table *table, struct exit_entry *entry, int64_t now_ms)
{
    if (!entry || (entry->state != WAITS && entry->state != SENT))
        return EXIT_FORGET;
    bool late = entry->session != table->session || must_look_up(table, entry, now_ms);
    if (entry->state == SENT)
        return entry->asked || late ? EXIT_RETURN : EXIT_PUBLISH;
    if (!late && is_late(table, message_id_due_ms(entry->id), now_ms)) /* so long its confirm is waited for */
        entry->again_ms = clock_monotonic_ms() + table->grace_ms / 2;
    if (!late)
        return EXIT_PUBLISH;
    set_state(table, entry, LOOK_UP);
    return EXIT_FORGET;
}

enum exit_verdict exit_table_may_publish(struct exit_table *table, struct message_id id, int64_t now_ms,
                                         struct inflight **content)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    enum exit_verdict v = judge(table, entry, now_ms);
    if (entry && v != EXIT_PUBLISH)
        keep(table, entry, content);
    return v;
}

static void move_entry(struct exit_table *table, struct message_id id, enum state state, int64_t delivered_ms)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    if (entry) {
        set_state(table, entry, state);
        entry->delivered_ms = delivered_ms;
        count_risk(table, entry);
    }
}

void exit_table_sent(struct exit_table *table, struct message_id id)
{
    move_entry(table, id, SENT, 0);
}

void exit_table_settling(struct exit_table *table, struct message_id id, int64_t delivered_ms)
{
    move_entry(table, id, SETTLING, delivered_ms);
}

void exit_table_deferred(struct exit_table *table, struct message_id id)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    if (entry) {
        entry->deferred = true;
        count_risk(table, entry);
    }
}

/* What it has of the exit queue is acknowledged. */
static void give_back_tag(struct exit_table *table, struct exit_entry *entry)
{
    if (entry->session == table->session)
        note_done(table, entry->tag);
    entry->session = 0;
}

size_t exit_table_unproven(struct exit_table *table, int64_t before_ms, struct message_id *out, size_t max)
{
    size_t n = 0;
    GUARD(&table->lock);
    for (uint32_t i = 0; table->settling > table->proven && i < table->count && n < max; i++) {
        struct exit_entry *entry = next_entry(table, &table->unproven_at);
        if (entry->state != SETTLING || entry->proof != PROOF_NONE || entry->delivered_ms == 0 ||
            entry->delivered_ms > before_ms)
            continue;
        entry->proof = PROOF_UNDER_WAY;
        out[n++] = entry->id;
    }
    return n;
}

void exit_table_proved(struct exit_table *table, const struct message_id *ids, size_t n, bool ok)
{
    GUARD(&table->lock);
    for (size_t i = 0; i < n; i++) {
        struct exit_entry *entry = find_in_table(table, ids[i]);
        if (!entry || entry->proof != PROOF_UNDER_WAY) /* it is settled, or has come back to this gateway */
            continue;
        set_proof(table, entry, ok ? PROOF_THERE : PROOF_NONE);
        count_risk(table, entry);
        if (ok)
            give_back_tag(table, entry);
    }
}

/* The proof replaces it, unless there is one already. True: it is not being settled. */
static bool join_proof(struct exit_table *table, struct exit_entry *entry, struct exit_proof *proof)
{
    bool is_settling = entry->state == SETTLING;
    if (entry->state == SENT || has_proof_here(table, entry))
        return false;
    give_back_tag(table, entry);
    leave_proof(table, entry);
    entry->came = proof;
    proof->open++;
    set_proof(table, entry, PROOF_THERE);
    set_state(table, entry, SETTLING);
    count_risk(table, entry);
    return !is_settling;
}

bool exit_table_insert_proof(struct exit_table *table, const struct message_id *ids, size_t n, uint64_t tag,
                             bool *fresh)
{
    struct exit_proof *proof = malloc(sizeof *proof);
    if (!proof)
        return false;
    bool room = true;
    GUARD(&table->lock);
    table->proofs++;
    *proof = (struct exit_proof){.tag = tag, .session = table->session, .open = 1};
    for (size_t i = 0; i < n && room; i++) {
        struct exit_entry *entry = find_in_table(table, ids[i]);
        if (!entry)
            entry = add_in_table(table, ids[i]);
        room = entry != NULL;
        fresh[i] = room && join_proof(table, entry, proof);
    }
    leave_proof(table, &(struct exit_entry){.came = proof}); /* the one that kept it from going at once */
    return room;
}

bool exit_table_has_proof(struct exit_table *table, struct message_id id)
{
    GUARD(&table->lock);
    const struct exit_entry *entry = find_in_table(table, id);
    return entry && entry->came;
}

static void remove_entry(struct exit_table *table, struct exit_entry *entry)
{
    give_back_tag(table, entry);
    set_state(table, entry, WAITS);
    set_proof(table, entry, PROOF_NONE);
    leave_proof(table, entry);
    inflight_free(entry->kept);
    count_risk(table, entry);
    remove_in_table(table, entry);
}

static void end_message(struct exit_table *table, struct message_id id, bool unless_proven)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    if (entry && !(unless_proven && entry->came))
        remove_entry(table, entry);
}

void exit_table_done(struct exit_table *table, struct message_id id)
{
    end_message(table, id, false);
}

void exit_table_resolved(struct exit_table *table, struct message_id id)
{
    end_message(table, id, true);
}

size_t exit_table_questions(struct exit_table *table, int64_t now_ms, int64_t clock_ms,
                            struct exit_question *out, size_t max)
{
    size_t n = 0;
    GUARD(&table->lock);
    bool scan =
        table->look_ups > 0 || (table->count > table->settling && clock_ms - table->scanned_ms >= SCAN_MS);
    if (scan)
        table->scanned_ms = clock_ms;
    for (uint32_t i = 0; scan && i < table->count && n < max; i++) {
        struct exit_entry *entry = next_entry(table, &table->questions_at);
        if (entry->asked || entry->state == SETTLING || entry->again_ms > clock_ms ||
            (entry->state != LOOK_UP && !must_look_up(table, entry, now_ms)))
            continue;
        if (entry->state == WAITS)
            set_state(table, entry, LOOK_UP);
        entry->asked = true;
        out[n++] = (struct exit_question){.id = entry->id, .kept = entry->kept, .sent = entry->state == SENT};
        entry->kept = NULL;
    }
    return n;
}

void exit_table_unanswered(struct exit_table *table, const struct exit_question *q, int64_t at_ms)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, q->id);
    inflight_free(entry && !entry->kept ? NULL : q->kept);
    if (entry) {
        entry->kept = entry->kept ? entry->kept : q->kept;
        entry->asked = false;
        entry->again_ms = at_ms;
    }
}

enum exit_unknown exit_table_unknown(struct exit_table *table, struct message_id id, int64_t at_ms)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    if (!entry || entry->came)
        return EXIT_UNKNOWN_ASKED;
    bool comes_again = entry->whole && entry->session == table->session;
    if (!entry->kept && entry->state == LOOK_UP && !comes_again) {
        remove_entry(table, entry);
        return EXIT_UNKNOWN_ENDED;
    }
    entry->asked = false;
    entry->again_ms = entry->kept ? 0 : at_ms;
    return entry->kept || entry->state != LOOK_UP ? EXIT_UNKNOWN_ASKED : EXIT_UNKNOWN_WANTED;
}

bool exit_table_look_up(struct exit_table *table, struct message_id id)
{
    GUARD(&table->lock);
    struct exit_entry *entry = find_in_table(table, id);
    if (!entry || entry->came)
        return false;
    set_state(table, entry, LOOK_UP);
    entry->delivered_ms = entry->again_ms = 0;
    entry->asked = false;
    count_risk(table, entry);
    return true;
}

static int64_t low_ms_of(const struct exit_table *table)
{
    int64_t low_ms = INT64_MAX;
    for (uint32_t i = 0; i < table->count; i++)
        if (message_id_due_ms(table->entries[i].id) < low_ms)
            low_ms = message_id_due_ms(table->entries[i].id);
    return low_ms;
}

int64_t exit_table_low_ms(struct exit_table *table)
{
    GUARD(&table->lock);
    return low_ms_of(table);
}

static void raise_unrescued(struct exit_table *table, int64_t low_ms)
{
    if (low_ms - table->grace_ms > table->unrescued_ms)
        table->unrescued_ms = low_ms - table->grace_ms;
}

int64_t exit_table_begin_note(struct exit_table *table, int64_t most_ms)
{
    GUARD(&table->lock);
    int64_t low_ms = low_ms_of(table);
    low_ms = low_ms < most_ms ? low_ms : most_ms;
    raise_unrescued(table, low_ms);
    return low_ms;
}

void exit_table_end_note(struct exit_table *table, int32_t instance, int64_t now_ms)
{
    GUARD(&table->lock);
    if (instance == table->counted_as)
        return;
    bool clock_known = now_ms != INT64_MAX;
    if (clock_known)
        raise_unrescued(table, now_ms);
    table->counted_as = clock_known ? instance : 0;
}

void exit_table_set_instance(struct exit_table *table, int32_t instance)
{
    GUARD(&table->lock);
    table->instance = instance;
}

size_t exit_table_count(struct exit_table *table, bool away, size_t *waiting)
{
    GUARD(&table->lock);
    *waiting = table->settling - table->proven + table->proofs + (away ? table->look_ups : 0);
    return table->count;
}

size_t exit_table_pop_done(struct exit_table *table, uint64_t *out, size_t max)
{
    GUARD(&table->lock);
    size_t n = table->done_count < max ? table->done_count : max;
    if (n > 0) {
        memcpy(out, table->done, n * sizeof *out);
        memmove(table->done, table->done + n, (table->done_count - n) * sizeof *out);
    }
    table->done_count -= n;
    return n;
}
