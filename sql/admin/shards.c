#include "sql/admin/shards.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

static void add_sources(struct pg_params *p, const struct shards_place *place)
{
    struct buf *sources = pg_add_array(p, PG_OID_TEXT, place->source_count);
    for (size_t i = 0; i < place->source_count; i++)
        pg_array_bytes(sources, bytes_of_str(place->sources[i]));
}

void shards_record_free(struct shards_record *r)
{
    free(r->sources);
    free(r->names);
    r->sources = NULL;
    r->names = NULL;
    r->source_count = 0;
}

static int read_sources(struct pg *c, const struct shards_place *place, struct shards_record *out,
                        struct err *e)
{
    char name[sizeof *out->names];
    const struct pg_rows rows = {PG_ROW(PG_TO(name)), name, sizeof name, NULL};
    int count = pg_take_all(pg_query(c, sql_query_shards_sources, PG_WITH(as_str(place->place)), e), &rows,
                            &out->names, e);
    if (count < 0)
        return -1;
    out->sources = calloc((size_t)count + 1, sizeof *out->sources);
    if (!out->sources) {
        shards_record_free(out);
        return err_set(e, ERR_BUG, "out of memory");
    }
    for (int i = 0; i < count; i++)
        out->sources[out->source_count++] = out->names[i];
    return 0;
}

static int take_row(PGresult *r, const char *place, struct shards_record *out, struct err *e)
{
    *out = (struct shards_record){0};
    int found = pg_take(r,
                        PG_ROW(PG_TO(out->queues), PG_TO(out->most), PG_TO(out->by), PG_TO(out->used),
                               PG_TO(out->settled), PG_TO(out->moving), PG_TO(out->fresh)),
                        NULL, e);
    return found == 0 ? err_set(e, ERR_CONFIG, "postdate.shards has no row '%s'", place) : found > 0 ? 0 : -1;
}

int shards_look(struct pg *c, const char *place, struct shards_record *out, struct err *e)
{
    return take_row(pg_query(c, sql_query_shards_look, PG_WITH(as_str(place)), e), place, out, e);
}

static int read_row(struct pg *c, const struct shards_place *place, struct shards_record *out, struct err *e)
{
    PG_PARAMS(p) = {{as_str(place->place)}};
    add_sources(&p, place);
    return take_row(pg_query(c, sql_query_shards_read, &p, e), place->place, out, e) == 0
               ? read_sources(c, place, out, e)
               : -1;
}

int shards_lock(struct pg *c, const struct shards_place *p, const struct shards_wish *wish,
                struct shards_record *out, struct err *e)
{
    int64_t grows = pg_begin_patient(c, e);
    if (grows == 0 && wish)
        grows = pg_number(c, sql_query_shards_want,
                          PG_WITH(as_str(p->place), as_int4(wish->queues), as_str(wish->by)), e);
    if (grows < 0 || read_row(c, p, out, e) != 0)
        return shards_unlock(c, -1, e);
    out->grows = grows > 0;
    return 0;
}

int shards_unmark(struct pg *c, const struct shards_place *place, struct err *e)
{
    PG_PARAMS(p) = {{as_str(place->place)}};
    add_sources(&p, place);
    return pg_do(c, sql_query_shards_unmark, &p, e);
}

int shards_mark(struct pg *c, const struct shards_place *place, struct err *e)
{
    return pg_do(c, sql_query_shards_mark, PG_WITH(as_str(place->place)), e);
}

int shards_unlock(struct pg *c, int rc, struct err *e)
{
    if (rc == 0 && pg_commit(c, e) == 0)
        return 0;
    pg_rollback(c);
    return -1;
}
