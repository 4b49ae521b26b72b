/* A group commit and the group of requests that share its transaction. One thread's. */
#ifndef POSTDATE_GATEWAY_API_GROUP_GROUP_COMMIT_H
#define POSTDATE_GATEWAY_API_GROUP_GROUP_COMMIT_H

#include "gateway/api/api_internal.h"
#include "gateway/api/executor_internal.h"
#include "gateway/api/executor_park.h"
#include "sql/operate/idempotency.h"
#include "sql/pipeline/commit_check.h"

#define GROUP_MAX 512

struct member {
    struct api_schedule schedule;
    struct idempotency_request idempotency; /* key.len 0: none */
    bool replayed; /* answered by an earlier request with the same Idempotency-Key, or refused over it */
    bool waits;    /* to be offered again */
    bool untried;  /* with waits: not for a lock that it met itself */
};

struct group_commit {
    struct executor *executor;
    struct executor_session session;
    struct api_scheduler scheduler;
    struct store_locks locks;
    struct member group[GROUP_MAX];
    struct idempotency_request *keys[GROUP_MAX];
    size_t count, key_count;
    struct api_request *next, **next_end; /* what did not fit into the last group, in the order it came */
    size_t next_bytes;                    /* their bodies */
    int number;                           /* of this thread: only that of 0 takes large requests */
    struct executor_park park;
    bool trying; /* this group is from the park */
    size_t
        park_tries; /* how many requests from the park may be the next one: more, the less locks there are */
    bool after_alone; /* the last group had a batch with keys */
    int64_t now_ms;   /* database clock of this group */
    struct commit_check check;
};

/* group_commit_gather.c: fills the group, which may stay empty. False: the executor is closing and nothing is
 * left. */
bool group_commit_gather(struct group_commit *s);
/* False: it does not fit into the group, and is not in it. True: it is in it, or answered. */
bool group_commit_add(struct group_commit *s, struct api_request *r);

/* For struct store_extra; ctx is the group commit. */
int group_commit_before(void *group_commit, struct pg *pg, struct err *e);
int group_commit_after(void *group_commit, struct pg *pg, struct err *e);

#endif
