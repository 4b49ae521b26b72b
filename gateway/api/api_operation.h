/* The operations, one row each: what they are called, what a request needs, who does them, and what may be
 * done when nobody knows whether one was. All ways in go by this table. */
#ifndef POSTDATE_GATEWAY_API_API_OPERATION_H
#define POSTDATE_GATEWAY_API_API_OPERATION_H

#include "gateway/api/api.h"

/* What a request has, besides its operation. */
enum api_shape {
    API_SHAPE_BODY,
    API_SHAPE_PARAMS, /* an id, or parameters */
    API_SHAPE_ID,
    API_SHAPE_ID_BODY, /* both */
};

/* Which threads of the executor do it. */
enum api_threads { API_GROUP_COMMIT, API_WORKER, API_BULK_WORKER, API_STATISTICS, API_THREADS_COUNT };

/* May it be asked for again when nobody knows whether it was done? */
enum api_effect {
    API_READS,      /* always */
    API_IDEMPOTENT, /* always: it says the same twice */
    API_KEYED,      /* with an Idempotency-Key */
    API_CHANGES,    /* no */
};

struct api_operation {
    const char *name; /* as the control queue calls it */
    const char *id;   /* what it calls the id there; NULL: "id" */
    bool by_filter;   /* of the two with this name, the one with a filter */
    bool needs_key;   /* where a request may be delivered twice */
    bool in_cells;    /* what this gateway does not have is looked for in the other cells */
    bool conditional; /* if_match and if_none_match count */
    enum api_shape shape;
    enum api_threads threads;
    enum api_effect effect;
    enum operate_kind kind; /* of those on many: what is done with each, or with each dead letter */
    /* For workers; as api_run. */
    int (*run)(struct api_context *c, struct api_request *r, struct err *e);
};

const struct api_operation *api_operation_of(enum api_op op);
/* The one with a filter or the other, where there are two of this name. NULL: there is none. */
const struct api_operation *api_operation_find(struct bytes name, bool by_filter);
/* "schedule, show, …" */
const char *api_operation_names(char *out, size_t size);

#endif
