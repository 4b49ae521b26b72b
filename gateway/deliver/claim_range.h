/* One claimed range of messages (sql/pipeline/batch.h), and which of them are settled.
 *
 * The claimer creates it, with all of its ids. Each message in flight holds a reference, and so does the
 * settler, the only reader afterwards. If a message is no longer in memory and was not settled, its place
 * stays open: the claim is never reported as done, and at the end of the instance that message is released.
 */
#ifndef POSTDATE_GATEWAY_DELIVER_CLAIM_RANGE_H
#define POSTDATE_GATEWAY_DELIVER_CLAIM_RANGE_H

#include "sql/pipeline/batch.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum claim_mark {
    MARK_OPEN,
    MARK_DELIVERED, /* recorded with the range */
    MARK_APART,     /* settled in its own row */
    MARK_BACK,      /* not begun, and no longer in memory */
    MARK_WAITS,     /* the same, because its destination hangs */
};

struct claim_place {
    struct message_id id;
    uint8_t mark; /* enum claim_mark */
};

struct claim_range {
    struct batch_name batch;
    int32_t instance; /* that claimed it */
    atomic_int holders;
    /* The settler's. */
    struct claim_range *next;
    bool listed;
    bool written;               /* the marks are recorded in the database */
    int64_t written_ms;         /* monotonic: since when */
    struct message_id upto;     /* the last settled message, or the start of the range */
    size_t open;                /* number of messages in memory */
    size_t back;                /* number of messages put back: the whole range is, once none is open */
    bool waits;                 /* all of them because their destination hangs */
    size_t count;               /* of places */
    struct claim_place *places; /* sorted by id; delivered ones are removed by and by */
};

/* With one reference. NULL: out of memory. ids: sorted; all messages before upto that are not among them are
 * settled. */
struct claim_range *claim_range_new(const struct batch_name *batch, int32_t instance, struct message_id upto,
                                    const struct message_id *ids, size_t count);
void claim_range_hold(struct claim_range *r);
/* The last release frees it. NULL is fine. */
void claim_range_release(struct claim_range *r);

/* --- for the settler */

/* Marks an open place; others are not changed. */
void claim_range_mark(struct claim_range *r, struct message_id id, enum claim_mark mark);
/* The next unsettled message before the last settled one; *at: 0 at first. NULL: no more. */
const struct message_id *claim_range_pending(const struct claim_range *r, size_t *at);
/* All marks are recorded in the database. Frees the memory of delivered messages. now_ms: monotonic. */
void claim_range_note_written(struct claim_range *r, int64_t now_ms);
/* The database may have lost all marks. Outcomes in messages' own rows cannot be recorded again, so these
 * places are opened. True: there are such, and the claim was not over. */
bool claim_range_note_forgotten(struct claim_range *r);
/* The state to record. */
enum batch_end claim_range_end(const struct claim_range *r);
/* Is no message of it in flight any more? */
bool claim_range_is_over(struct claim_range *r);

#endif
