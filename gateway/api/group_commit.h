/* A group commit and the group of requests that share its transaction. One thread's. */
#ifndef POSTDATE_GATEWAY_API_GROUP_COMMIT_H
#define POSTDATE_GATEWAY_API_GROUP_COMMIT_H

#include "gateway/api/executor_internal.h"
#include "sql/operate/idempotency.h"
#include "sql/pipeline/commit_check.h"

#define GROUP_MAX 512

struct member {
    struct api_schedule schedule;
    struct idempotency_request idempotency; /* key.len 0: none */
    uint64_t key_hash, idempotency_hash;    /* 0: none */
    bool replayed; /* answered by an earlier request with the same Idempotency-Key, or refused over it */
    bool waits;    /* to be offered again */
};

struct group_commit {
    struct executor *executor;
    struct executor_session session;
    struct api_scheduler *scheduler;
    struct store_locks locks;
    struct member group[GROUP_MAX];
    struct idempotency_request *keys[GROUP_MAX];
    size_t count, key_count;
    struct api_request *later; /* to be offered again, in no order */
    int64_t now_ms;            /* database clock of this group */
    struct commit_check check;
};

/* For struct store_extra; ctx is the group commit. */
int group_commit_before(void *group_commit, struct pg *pg, struct err *e);
int group_commit_after(void *group_commit, struct pg *pg, struct err *e);

#endif
