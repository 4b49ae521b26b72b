/* The messages of one claim of a range (sql/pipeline/batch.h), and which of them are settled.
 *
 * The claimer makes it, with all of its ids. Each message in flight keeps it alive, and the settler, who
 * alone looks into it afterwards. A place that nobody settles, for its message is in memory no more, stays
 * open: so the claim is never said to be done, and the end of the instance lets that message wait again. */
#ifndef POSTDATE_GATEWAY_PIPELINE_CLAIM_RANGE_H
#define POSTDATE_GATEWAY_PIPELINE_CLAIM_RANGE_H

#include "sql/pipeline/batch.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum claim_mark {
    MARK_OPEN,
    MARK_DELIVERED, /* that is written down with the range */
    MARK_APART,     /* its own row says how it was settled */
    MARK_BACK,      /* not begun, and not in memory any more */
    MARK_WAITS,     /* the same, for its target stands still */
};

struct claim_place {
    struct message_id id;
    uint8_t mark; /* enum claim_mark */
};

struct claim_range {
    struct batch_name batch;
    int32_t instance; /* under which it was claimed */
    atomic_int holders;
    /* The settler's. */
    struct claim_range *next;
    bool listed;
    bool written;               /* the database knows what is marked */
    int64_t written_ms;         /* monotonic: since when */
    struct message_id upto;     /* the last one that is settled, or where it began */
    size_t open;                /* how many are in memory */
    size_t back;                /* how many went back: when no more are open, the range does */
    bool waits;                 /* all of these for their target stands still */
    size_t count;               /* of places */
    struct claim_place *places; /* in the order of their ids; those delivered are left out by and by */
};

/* With one holder. NULL: out of memory. ids: in their order; all before upto that are not among them are
 * settled. */
struct claim_range *claim_range_new(const struct batch_name *batch, int32_t instance, struct message_id upto,
                                    const struct message_id *ids, size_t count);
void claim_range_hold(struct claim_range *r);
/* The last one frees it. NULL is fine. */
void claim_range_release(struct claim_range *r);

/* --- the settler's */

/* Marks one that is open; one that is not stays as it is. */
void claim_range_mark(struct claim_range *r, struct message_id id, enum claim_mark mark);
/* The next one that is not settled and before the last one that is; *at: 0 at first. NULL: no more. */
const struct message_id *claim_range_pending(const struct claim_range *r, size_t *at);
/* The database knows all of it. Gives back the memory of what is delivered. now_ms: monotonic. */
void claim_range_note_written(struct claim_range *r, int64_t now_ms);
/* The database may have forgotten all of it. What rows say by themselves nobody can say again: these places
 * open again. True: there are such, and the claim was not over. */
bool claim_range_note_forgotten(struct claim_range *r);
/* What is to be written of it. */
enum batch_end claim_range_end(const struct claim_range *r);
/* No message of it is in flight any more. */
bool claim_range_is_over(struct claim_range *r);

#endif
