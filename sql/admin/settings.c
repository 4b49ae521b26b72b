#include "sql/admin/settings.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#define ALLOW_BYTES_MAX (1u << 20)
#define WAKE_EARLIER_MS 1000

int settings_record(struct pg *c, const struct settings *s, struct err *e)
{
    struct buf allow;
    struct pg_params p = {0};
    buf_init(&allow, ALLOW_BYTES_MAX);
    pg_array_begin(&allow, PG_OID_TEXT, s->rules->allow_count);
    for (size_t i = 0; i < s->rules->allow_count; i++)
        pg_array_bytes(&allow, bytes_of_str(s->rules->allow[i]));
    pg_add_str(&p, s->rules->delivery_exchange);
    pg_add_bytes(&p, buf_bytes(&allow));
    pg_add_int8(&p, s->rules->max_delay_ms);
    pg_add_int8(&p, (int64_t)s->rules->max_body);
    pg_add_int4(&p, (int32_t)s->rules->max_properties);
    pg_add_int8(&p, s->key_memory_ms);
    pg_add_int8(&p, s->lead_ms + WAKE_EARLIER_MS);
    if (s->hold)
        pg_add_str(&p, hold_policy_name(*s->hold));
    else
        pg_add_null(&p);
    int rc = allow.failed                                      ? err_set(e, ERR_BUG, "out of memory")
             : pg_run(c, sql_query_settings_record, &p, e) < 0 ? -1
                                                               : 0;
    buf_free(&allow);
    return rc;
}

int settings_hold_policy(struct pg *c, enum hold_policy *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_settings_hold, NULL, e);
    if (!r)
        return -1;
    int rc = PQntuples(r) == 1 && hold_policy_parse(pg_bytes(r, 0, 0), out) == 0
                 ? 0
                 : err_set(e, ERR_CONFIG, "postdate.settings does not say what RabbitMQ may hold");
    PQclear(r);
    return rc;
}
