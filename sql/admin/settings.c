#include "sql/admin/settings.h"

#include "core/base/names.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#define WAKE_EARLIER_MS 1000

int settings_record(struct pg *c, const struct settings *s, struct err *e)
{
    PG_PARAMS(p) = {{as_str(s->rules->delivery_exchange)}};
    struct buf *allow = pg_add_array(&p, PG_OID_TEXT, s->rules->allow_count);
    for (size_t i = 0; i < s->rules->allow_count; i++)
        pg_array_bytes(allow, bytes_of_str(s->rules->allow[i]));
    pg_add(&p, as_int8(s->rules->max_delay_ms));
    pg_add(&p, as_int8((int64_t)s->rules->max_body));
    pg_add(&p, as_int4((int32_t)s->rules->max_properties));
    pg_add(&p, as_int8(s->key_memory_ms));
    pg_add(&p, as_int8(s->lead_ms + WAKE_EARLIER_MS));
    pg_add(&p, as_str(s->hold ? hold_policy_name(*s->hold) : NULL));
    pg_add(&p, as_str(broker_names.prefix));
    return pg_do(c, sql_query_settings_record, &p, e);
}

int settings_take_cell(struct pg *c, int wanted, int *out, struct err *e)
{
    *out = -1;
    if ((wanted >= 0 && pg_do(c, sql_query_settings_cell_take, PG_WITH(as_int4(wanted)), e) != 0) ||
        pg_ask(c, sql_query_store_cell, NULL, PG_ROW(PG_TO(*out)), e) != 0)
        return -1;
    if (wanted < 0 || wanted == *out)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "cell.number is %d, but this database is cell %d, which its ids contain: set it to %d, or "
                   "leave it out (a database keeps its first number)",
                   wanted, *out, *out);
}

int settings_feed(struct pg *c, struct settings_feed *f, struct err *e)
{
    if (pg_begin(c, e) != 0)
        return -1;
    f->before = SETTINGS_FEED_UNKNOWN;
    if (pg_ask(c, sql_query_settings_feed_lock, PG_WITH(as_str(f->exchange)), PG_ROW(PG_TO(f->before)), e) ==
            0 &&
        f->bind(f, e) == 0 &&
        pg_do(c, sql_query_settings_feed_set, PG_WITH(as_str(f->exchange), as_int4(f->weight)), e) == 0 &&
        pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}

int settings_hold_policy(struct pg *c, enum hold_policy *out, struct err *e)
{
    char hold[16] = "";
    if (pg_ask(c, sql_query_settings_hold, NULL, PG_ROW(PG_TO(hold)), e) != 0)
        return -1;
    return hold_policy_parse(bytes_of_str(hold), out) == 0
               ? 0
               : err_set(e, ERR_CONFIG,
                         "postdate.settings does not contain the messages that RabbitMQ may hold");
}
