/* The table of operations, a row each: names, HTTP method and path, parameters, executing threads, and
 * whether a request may be repeated if its outcome is unknown. All interfaces use this table, and
 * /openapi.json is generated from it. */
#ifndef POSTDATE_GATEWAY_OPS_API_OPERATION_H
#define POSTDATE_GATEWAY_OPS_API_OPERATION_H

#include "gateway/ops/api.h"
#include "sql/operate/ask.h"
#include <string.h>

/* The threads of the executor that run an operation. */
enum api_threads { API_GROUP_COMMIT, API_WORKER, API_BULK_WORKER, API_STATISTICS, API_THREADS_COUNT };

/* May a request be repeated if its outcome is unknown? */
enum api_effect {
    API_READS,      /* always */
    API_IDEMPOTENT, /* always: a repetition has the same effect */
    API_KEYED,      /* with an Idempotency-Key */
    API_CHANGES,    /* no */
};

enum api_field_kind {
    API_FIELD_NAME,   /* of an exchange, a queue, a key: text of up to MESSAGE_NAME_MAX bytes, without NUL */
    API_FIELD_RATE,   /* "200/s" (core/base/rate.h); the function gets the number per second */
    API_FIELD_NUMBER, /* a whole number from 1 to `most` */
};

/* A field of the body, or a parameter. A table of them ends with {0}. */
struct api_field {
    const char *name;
    enum api_field_kind kind;
    bool required;
    int64_t most;
    const char *allowed; /* for users; NULL for names */
};

struct api_operation {
    const char *name;         /* in the control queue; several rows may share a name: api_operation_find */
    const char *method;       /* over HTTP; POST, PUT and PATCH have a body */
    const char *path;         /* with a placeholder for the id: "{id}", "{name}"; NULL: not over HTTP */
    const char *params;       /* the names of its parameters, separated by blanks */
    enum api_threads threads; /* API_BULK_WORKER: its body may have dry_run */
    enum api_effect effect;
    int (*run)(struct api_context *c, struct api_request *r, struct err *e); /* for workers; as api_run */
    int kind;           /* for run: which of its operations */
    enum ask_noun noun; /* of api_ask: the noun of the SQL function; the operation's name there is the last
                           word of `name` */
    /* of api_ask: the fields of its body, or its parameters; NULL: no argument */
    const struct api_field *fields;
    const char *answers; /* of api_ask: the field that contains the answer; NULL: the answer is an object */
    const char *for_all; /* why it needs a token for all exchanges; NULL: any token */
    bool large;          /* its body may be a message */
    bool empty;          /* its body is {} */
    bool needs_key;      /* needs an Idempotency-Key if a request may be delivered twice */
    bool in_cells;       /* if this gateway's cell does not have the message, the other cells are queried */
    bool conditional;    /* if_match and if_none_match apply */
    bool removes;        /* removes the object: a repetition finds none */
};

/* All of them; the last one has no name. */
extern const struct api_operation api_operations[];

/* The row with the name in the request's "op" that fits its fields: with or without a filter, with or without
 * an id. NULL: none. */
const struct api_operation *api_operation_find(const json_t *request);
/* The name of its id, such as "pattern"; len 0: it has none. */
static inline struct bytes api_operation_id(const struct api_operation *op)
{
    const char *hole = op->path != NULL ? strchr(op->path, '{') : NULL;
    return hole != NULL ? bytes_of(hole + 1, strcspn(hole + 1, "}")) : (struct bytes){0};
}
bool api_operation_has_body(const struct api_operation *op);
/* Does an Idempotency-Key apply? */
bool api_operation_is_keyed(const struct api_operation *op);
/* Is the answer to a repetition the same as the first one? Then a client that lost the first answer may
 * repeat the request. */
bool api_operation_repeats(const struct api_request *r);
/* "schedule, show, …" */
const char *api_operation_names(char *out, size_t size);

#endif
