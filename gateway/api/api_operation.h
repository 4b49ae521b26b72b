/* The operations, one row each: what they are called, over HTTP too, what a request may have, who does them,
 * and what may be done when nobody knows whether one was. All ways in go by this table, and /openapi.json is
 * made of it. */
#ifndef POSTDATE_GATEWAY_API_API_OPERATION_H
#define POSTDATE_GATEWAY_API_API_OPERATION_H

#include "gateway/api/api.h"
#include "sql/operate/ask.h"
#include <string.h>

/* Which threads of the executor do it. */
enum api_threads { API_GROUP_COMMIT, API_WORKER, API_BULK_WORKER, API_STATISTICS, API_THREADS_COUNT };

/* May it be asked for again when nobody knows whether it was done? */
enum api_effect {
    API_READS,      /* always */
    API_IDEMPOTENT, /* always: it says the same twice */
    API_KEYED,      /* with an Idempotency-Key */
    API_CHANGES,    /* no */
};

enum api_field_kind {
    API_FIELD_NAME,   /* of an exchange, a queue, a key: up to MESSAGE_NAME_MAX bytes of text without NUL */
    API_FIELD_RATE,   /* "200/s" (core/base/rate.h); the function gets how many a second */
    API_FIELD_NUMBER, /* a whole number from 1 to `most` */
};

/* A field of the body, or a parameter. A table of them ends with {0}. */
struct api_field {
    const char *name;
    enum api_field_kind kind;
    bool required;
    int64_t most;
    const char *allowed; /* for people; NULL of a name */
};

struct api_operation {
    const char *name;         /* as the control queue calls it; several may share one: api_operation_find */
    const char *method;       /* over HTTP; POST, PUT and PATCH have a body */
    const char *path;         /* with a hole for the id: "{id}", "{name}"; NULL: not over HTTP */
    const char *params;       /* the names of those that it takes, between blanks */
    enum api_threads threads; /* API_BULK_WORKER: its body may say dry_run */
    enum api_effect effect;
    int (*run)(struct api_context *c, struct api_request *r, struct err *e); /* for workers; as api_run */
    int kind; /* run's own: which of its operations */
    enum ask_noun
        noun; /* of api_ask: whose function does it; it calls the operation as the last word of `name` */
    const struct api_field *fields; /* of api_ask: of its body, or its parameters; NULL: it has no argument */
    const char *answers;            /* of api_ask: what the answer is called in an object; NULL: it is one */
    const char *for_all;            /* why it needs a token for all exchanges; NULL: any will do */
    bool large;                     /* its body may be a message */
    bool empty;                     /* its body is {} */
    bool needs_key;                 /* where a request may be delivered twice */
    bool in_cells;                  /* what this gateway does not have is looked for in the other cells */
    bool conditional;               /* if_match and if_none_match count */
    bool removes;                   /* it is not there the second time */
};

/* All of them; the last one has no name. */
extern const struct api_operation api_operations[];

/* Of those with the name that the request's "op" says, the one that fits best: by a filter or not, with an id
 * or without. NULL: there is none. */
const struct api_operation *api_operation_find(const json_t *request);
/* What it calls its id, such as "pattern"; len 0: it has none. */
static inline struct bytes api_operation_id(const struct api_operation *op)
{
    const char *hole = op->path != NULL ? strchr(op->path, '{') : NULL;
    return hole != NULL ? bytes_of(hole + 1, strcspn(hole + 1, "}")) : (struct bytes){0};
}
bool api_operation_has_body(const struct api_operation *op);
/* An Idempotency-Key counts. */
bool api_operation_is_keyed(const struct api_operation *op);
/* Is its second answer what the first one would have been? Then who lost that one may ask again unseen. */
bool api_operation_repeats(const struct api_request *r);
/* "schedule, show, …" */
const char *api_operation_names(char *out, size_t size);

#endif
