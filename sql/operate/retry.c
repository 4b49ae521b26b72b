#include "sql/operate/retry.h"

#include "sql/operate/operate_internal.h"
#include "sql/pipeline/lineage.h"
#include "sql_embedded.h"

#define PATTERN_SHOWN 120

static void put_reasons(struct buf *out, unsigned on)
{
    size_t n = 0;
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        n += (on & r) != 0;
    pg_array_begin(out, PG_OID_TEXT, n);
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        if (on & r)
            pg_array_bytes(out, bytes_of_str(death_reason_name(r)));
}

int retry_set(struct pg *c, const struct retry_policy *policy, struct err *e)
{
    struct pg_params p = {0};
    struct buf reasons;
    if (retry_policy_check(policy, e) != 0)
        return -1;
    buf_init(&reasons, OPERATE_ARRAY_MAX);
    put_reasons(&reasons, policy->on);
    pg_add_bytes(&p, policy->pattern);
    pg_add_int4(&p, policy->attempts);
    pg_add_int8(&p, policy->first_ms);
    pg_add_int8(&p, (int64_t)(policy->factor * 1000 + 0.5));
    pg_add_int8(&p, policy->max_ms);
    pg_add_int4(&p, policy->jitter);
    pg_add_bytes(&p, buf_bytes(&reasons));
    pg_add_int8(&p, policy->keep_dead_ms);
    PGresult *r = reasons.failed ? NULL : operate_query(c, sql_query_retry_policy_set, &p, e);
    if (reasons.failed)
        err_set(e, ERR_BUG, "out of memory");
    int rc = r ? 0 : -1;
    PQclear(r);
    buf_free(&reasons);
    return rc;
}

static int fail_missing(struct bytes pattern, struct err *e)
{
    char shown[PATTERN_SHOWN];
    return err_set(e, ERR_NOT_FOUND, "no retry policy has the pattern \"%s\"",
                   bytes_printable(pattern, shown, sizeof shown));
}

int retry_remove(struct pg *c, struct bytes pattern, struct err *e)
{
    struct pg_params p = {0};
    pg_add_bytes(&p, pattern);
    PGresult *r = operate_query(c, sql_query_retry_policy_remove, &p, e);
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
