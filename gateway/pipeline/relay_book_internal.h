/* What is in the book, and the table of it. Whoever calls has the book's lock. */
#ifndef POSTDATE_GATEWAY_PIPELINE_RELAY_BOOK_INTERNAL_H
#define POSTDATE_GATEWAY_PIPELINE_RELAY_BOOK_INTERNAL_H

#include "gateway/pipeline/relay_book.h"

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
};

/* relay_table.c. What they return holds until the next one is added or removed. NULL: it is not there. */
struct relay_entry *relay_table_find(const struct relay_book *book, struct message_id id);
/* One that is not there yet, with all else 0. NULL: no memory. */
struct relay_entry *relay_table_add(struct relay_book *book, struct message_id id);
void relay_table_remove(struct relay_book *book, struct relay_entry *entry);

#endif
