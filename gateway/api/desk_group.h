/* A storer and the group of requests that share its transaction. One thread's. */
#ifndef POSTDATE_GATEWAY_API_DESK_GROUP_H
#define POSTDATE_GATEWAY_API_DESK_GROUP_H

#include "gateway/api/desk_internal.h"
#include "sql/operate/idempotency.h"

#define GROUP_MAX 512

struct member {
    struct api_schedule schedule;
    struct idempotency_request idempotency; /* key.len 0: none */
    uint64_t key_hash, idempotency_hash;    /* 0: none */
    bool replayed; /* answered by an earlier request with the same Idempotency-Key, or refused over it */
    bool waits;    /* to be offered again */
};

struct storer {
    struct desk *desk;
    struct desk_line line;
    struct api_scheduler *scheduler;
    struct store_locks locks;
    struct member group[GROUP_MAX];
    struct idempotency_request *keys[GROUP_MAX];
    size_t count, key_count;
    struct api_request *later; /* to be offered again, in no order */
    int64_t now_ms;            /* database clock of this group */
    bool commit_sent;
    bool unclear; /* the answer to a commit of this group was lost, and the commit was not seen since */
};

/* For struct store_extra; ctx is the storer. */
int desk_group_before(void *storer, struct pg *pg, struct err *e);
int desk_group_after(void *storer, struct pg *pg, struct err *e);

#endif
