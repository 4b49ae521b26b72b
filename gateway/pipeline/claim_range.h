/* The messages of one claim of a range (sql/pipeline/batch.h), and how far they are settled.
 *
 * The claimer makes it and adds a message at each place, in the order of their ids. Each message in flight
 * keeps it alive, and the settler, who alone marks places and reads marks. */
#ifndef POSTDATE_GATEWAY_PIPELINE_CLAIM_RANGE_H
#define POSTDATE_GATEWAY_PIPELINE_CLAIM_RANGE_H

#include "core/message/message_id.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum claim_place {
    PLACE_OPEN,    /* in flight */
    PLACE_SETTLED, /* delivered, or settled by itself */
    PLACE_LEFT,    /* in flight, and taken out of the range: it is settled by itself */
};

struct claim_range {
    int64_t batch;
    int32_t instance; /* under which it was claimed */
    atomic_int holders;
    size_t count;
    struct message_id *ids;
    uint8_t *places; /* enum claim_place */
    /* The settler's. */
    struct claim_range *next;
    bool listed;
    size_t upto;      /* so many from the first one on are not open */
    size_t written;   /* of them, as the database knows */
    size_t last;      /* one behind the last place that is not open */
    int64_t stuck_ms; /* monotonic: since when there are open ones before others; 0: there are none */
};

/* With one holder. NULL: out of memory. */
struct claim_range *claim_range_new(int64_t batch, int32_t instance, size_t count);
void claim_range_hold(struct claim_range *r);
/* The last one frees it. NULL is fine. */
void claim_range_release(struct claim_range *r);
/* The settler's. now_ms: monotonic. */
void claim_range_mark(struct claim_range *r, size_t place, enum claim_place mark, int64_t now_ms);

#endif
