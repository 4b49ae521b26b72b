#include "sql/operate/retry.h"

#include "sql/operate/operate_internal.h"
#include "sql/pipeline/lineage.h"
#include "sql_embedded.h"

#define PATTERN_SHOWN 120

static struct pg_value as_reasons(unsigned on)
{
    struct bytes names[sizeof on * 8];
    size_t n = 0;
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        if (on & r)
            names[n++] = bytes_of_str(death_reason_name(r));
    return as_texts(names, n);
}

int retry_set(struct pg *c, const struct retry_policy *policy, struct err *e)
{
    if (retry_policy_check(policy, e) != 0)
        return -1;
    PGresult *r =
        operate_query(c, sql_query_retry_policy_set,
                      PG_WITH(as_bytes(policy->pattern), as_int4(policy->attempts), as_int8(policy->first_ms),
                              as_int8((int64_t)(policy->factor * 1000 + 0.5)), as_int8(policy->max_ms),
                              as_int4(policy->jitter), as_reasons(policy->on), as_int8(policy->keep_dead_ms)),
                      e);
    PQclear(r);
    return r ? 0 : -1;
}

static int fail_missing(struct bytes pattern, struct err *e)
{
    char shown[PATTERN_SHOWN];
    return err_set(e, ERR_NOT_FOUND, "no retry policy has the pattern \"%s\"",
                   bytes_printable(pattern, shown, sizeof shown));
}

int retry_remove(struct pg *c, struct bytes pattern, struct err *e)
{
    PGresult *r = operate_query(c, sql_query_retry_policy_remove, PG_WITH(as_bytes(pattern)), e);
    bool removed = r && pg_bool(r, 0, 0);
    PQclear(r);
    if (!r)
        return -1;
    return removed ? 0 : fail_missing(pattern, e);
}

int retry_get(struct pg *c, struct bytes pattern, struct arena *a, struct retry_policy *out, struct err *e)
{
    struct retry_policy *list;
    size_t count;
    if (lineage_policies(c, a, &list, &count, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(list[i].pattern, pattern)) {
            *out = list[i];
            return 0;
        }
    return fail_missing(pattern, e);
}

int retry_match(struct pg *c, struct bytes queue, struct arena *a, struct retry_match *out, struct err *e)
{
    struct retry_policy *list;
    size_t count;
    if (lineage_policies(c, a, &list, &count, e) != 0)
        return -1;
    const struct retry_policy *found = retry_policy_find(list, count, queue);
    *out = (struct retry_match){.policy = *found, .is_default = found == &retry_policy_default};
    return 0;
}
