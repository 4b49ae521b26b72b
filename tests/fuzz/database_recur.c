/* What sql/ would do with recurring schedules. */
#include "tests/fuzz/database.h"

#include "sql/operate/recur.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void check_request(const struct recur_request *q)
{
    bool listed = q->operation == RECUR_LIST, named = q->name.data != NULL && q->name.len > 0;
    FUZZ_HOLDS(bytes_is_text(q->name) && bytes_is_text(q->argument) && bytes_is_text(q->versions));
    FUZZ_HOLDS(q->via != NULL && (listed || named || q->operation == RECUR_PREVIEW));
    FUZZ_HOLDS(q->operation != RECUR_SET || q->argument.len > 1);
    FUZZ_HOLDS(!q->fresh || q->operation != RECUR_LIST);
    FUZZ_HOLDS(q->scope == NULL || q->scope->count <= 2);
    if (q->argument.len == 0)
        return;
    json_t *argument =
        json_loadb((const char *)q->argument.data, q->argument.len, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_HOLDS(q->operation == RECUR_SET || json_is_object(argument));
    json_decref(argument);
}

int recur_operate(struct pg *c, const struct recur_request *q, struct arena *a, struct recur_answer *out,
                  struct err *e)
{
    static const char *const texts[] = {"{\"name\":\"a\"}",
                                        "{\"name\":\"a\"}",
                                        "[{\"name\":\"a\"}]",
                                        "{\"name\":\"a\"}",
                                        "{\"name\":\"a\"}",
                                        "true",
                                        "\"id\"",
                                        "[]",
                                        "[]"};
    (void)c, (void)a;
    check_request(q);
    *out = (struct recur_answer){.text = bytes_of_str(texts[q->operation])};
    out->outcome = (enum recur_outcome)(database_byte() % 4);
    if (q->operation == RECUR_LIST)
        snprintf(out->tag, sizeof out->tag, "%s", database_byte() % 2 ? "a" : "");
    if (q->operation != RECUR_SET && out->outcome == RECUR_MADE)
        out->outcome = RECUR_DONE;
    return database_outcome(true, e);
}
