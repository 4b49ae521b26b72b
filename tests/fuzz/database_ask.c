/* What sql/ would do with what it is asked in JSON. */
#include "tests/fuzz/database.h"

#include "core/message/retry_policy.h"
#include "sql/operate/ask.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static bool is(const struct ask_request *q, const char *operation)
{
    return strcmp(q->operation, operation) == 0;
}

static void check_recur(const struct ask_request *q)
{
    bool named = q->name.data != NULL && q->name.len > 0;
    FUZZ_HOLDS(is(q, "list") || named || is(q, "preview"));
    FUZZ_HOLDS(!is(q, "set") || q->argument.len > 1);
    FUZZ_HOLDS(!q->fresh || !is(q, "list"));
}

/* They are checked when they get here. */
static void check_rate(const struct ask_request *q, const json_t *argument)
{
    const json_t *rate = json_object_get(argument, "rate"), *burst = json_object_get(argument, "burst");
    FUZZ_HOLDS(is(q, "list") || (json_is_string(json_object_get(argument, "exchange")) &&
                                 json_string_length(json_object_get(argument, "routing_key")) <= 255));
    FUZZ_HOLDS(is(q, "set") == json_is_real(rate));
    FUZZ_HOLDS(!is(q, "set") || json_real_value(rate) == 0 ||
               (json_real_value(rate) >= 0.0001 && json_real_value(rate) <= 1000000));
    FUZZ_HOLDS(burst == NULL || (json_integer_value(burst) >= 1 && json_integer_value(burst) <= 1000000));
}

static void check_policy(const struct ask_request *q, const json_t *argument)
{
    struct err e;
    const struct retry_policy p = {.pattern = q->name,
                                   .attempts = (int)json_integer_value(json_object_get(argument, "attempts")),
                                   .first_ms = json_integer_value(json_object_get(argument, "first")),
                                   .max_ms = json_integer_value(json_object_get(argument, "max")),
                                   .factor = json_real_value(json_object_get(argument, "factor")),
                                   .jitter = (int)json_integer_value(json_object_get(argument, "jitter")),
                                   .on = (unsigned)json_integer_value(json_object_get(argument, "on")),
                                   .keep_dead_ms =
                                       json_integer_value(json_object_get(argument, "keep_dead"))};
    FUZZ_HOLDS(!is(q, "set") || retry_policy_check(&p, &e) == 0);
    FUZZ_HOLDS(json_string_length(json_object_get(argument, "queue")) <= 255);
}

static void check_request(const struct ask_request *q)
{
    FUZZ_HOLDS(bytes_is_text(q->name) && bytes_is_text(q->argument) && bytes_is_text(q->versions));
    FUZZ_HOLDS(q->via != NULL && (q->scope == NULL || q->scope->count <= 2));
    json_t *argument = json_loadb(q->argument.len > 0 ? (const char *)q->argument.data : "{}",
                                  q->argument.len > 0 ? q->argument.len : 2, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_HOLDS(is(q, "set") || json_is_object(argument));
    if (q->noun == ASK_RECUR)
        check_recur(q);
    else if (q->noun == ASK_RATE)
        check_rate(q, argument);
    else
        check_policy(q, argument);
    json_decref(argument);
}

int ask_noun(struct pg *c, const struct ask_request *q, struct arena *a, struct ask_answer *out,
             struct err *e)
{
    (void)c, (void)a;
    check_request(q);
    *out = (struct ask_answer){.outcome = (enum ask_outcome)(database_byte() % 5)};
    out->text = bytes_of_str(is(q, "list") || is(q, "history") || is(q, "preview") ? "[]"
                             : is(q, "remove")                                     ? "true"
                             : is(q, "run")                                        ? "\"id\""
                                                                                   : "{\"name\":\"a\"}");
    if (is(q, "list"))
        snprintf(out->tag, sizeof out->tag, "%s", database_byte() % 2 ? "a" : "");
    if (!is(q, "set") && out->outcome == ASK_MADE)
        out->outcome = ASK_DONE;
    if (out->outcome != ASK_DONE && out->outcome != ASK_MADE) /* SQL says why */
        snprintf(out->said, sizeof out->said, "it is not to be done");
    return database_outcome(true, e);
}
