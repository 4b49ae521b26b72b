/* What this gateway's database does not have is looked for in those of the other cells.
 *
 * Only where its own has said so, and by the same operation with the same scope: so the answer is what a
 * gateway of that cell would give, with the cell's name. Who does not answer is not asked for a while, so
 * that it slows only what nobody else has. */
#include "gateway/api/executor_internal.h"
#include "gateway/runtime/log.h"
#include "sql/admin/migrate.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MS 2000 /* of another cell's database */
#define SEARCH_MS 5000 /* for all of them */
#define IDLE_MS 60000
#define PAUSE_MS 1000 /* until one that was away is asked again; doubled each time … */
#define PAUSES 5      /* … so often */

struct search {
    struct runtime *runtime;
    struct executor_cells *sessions;
    struct api_context context; /* a copy, with the connection of the cell that is asked */
    struct api_request *request;
    int64_t end_ms;
    char away[300]; /* those that could not be asked: "north, south" */
};

static bool is_own(const struct runtime *rt, const struct cell *cell)
{
    return (cell->number >= 0 && cell->number == atomic_load(&rt->cell_number)) ||
           strcmp(cell->postgres_url, rt->config->postgres.url) == 0;
}

static void close_session(struct executor_cell *s)
{
    pg_close(s->pg);
    s->pg = NULL;
}

static int note_failure(struct executor_cell *s, const struct cell *cell, const struct err *e)
{
    if (s->failures == 0)
        log_warning("cell %s cannot be asked: %s", cell->name, e->text);
    s->retry_at_ms = clock_monotonic_ms() + (PAUSE_MS << (s->failures < PAUSES ? s->failures : PAUSES));
    s->failures++;
    close_session(s);
    return -1;
}

/* 0: s->pg is connected. */
static int connect_cell(const struct search *q, struct executor_cell *s, const struct cell *cell)
{
    struct err e = {0};
    if (s->pg != NULL && !pg_is_broken(s->pg))
        return 0;
    close_session(s);
    if (clock_monotonic_ms() < s->retry_at_ms || clock_monotonic_ms() > q->end_ms)
        return -1;
    s->pg = pg_open_other(cell->postgres_url, "postdate http cell", ANSWER_MS, &e);
    if (s->pg == NULL || operate_hurry(s->pg, &e) != 0 || migrate_check(s->pg, "", "", false, &e) != 0)
        return note_failure(s, cell, &e);
    if (s->failures > 0)
        log_info("cell %s can be asked again", cell->name);
    s->failures = 0;
    return 0;
}

static void name_cell(struct api_answer *a, const struct cell *cell)
{
    struct buf named;
    struct bytes body = buf_bytes(&a->body);
    if (body.len < 2 || body.data[0] != '{')
        return;
    buf_init(&named, API_ANSWER_MAX);
    buf_printf(&named, "{\"cell\":\"%s\",", cell->name); /* names of cells need no escapes */
    buf_put(&named, body.data + 1, body.len - 1);
    if (named.failed) {
        buf_free(&named);
        api_fail(a, API_OVERLOADED, "there is no memory for this answer now");
        return;
    }
    buf_free(&a->body);
    a->body = named;
}

static void begin_answer(struct api_answer *a)
{
    api_answer_close(a);
    api_answer_open(a);
}

/* One try over a connection that may have died while idle. 1: the cell has it, and that is answered; 0: it
 * does not have it; -1: it did not say. */
static int run_once(struct search *q, struct executor_cell *s, const struct cell *cell, struct err *e)
{
    struct api_request *r = q->request;
    struct api_context *c = &q->context;
    begin_answer(&r->answer);
    c->pg = s->pg;
    c->wrote = c->wake = c->idle = c->done = false;
    s->used_ms = clock_monotonic_ms();
    if (api_run(c, r, e) == 0)
        return r->answer.problem != API_NOT_FOUND;
    if (c->wrote || c->done)
        api_fail(&r->answer, API_UNKNOWN_OUTCOME, "the database of cell %s went away in the middle",
                 cell->name);
    else if (e->kind == ERR_BUSY)
        api_fail_err(&r->answer, e);
    else
        return -1;
    return 1;
}

static bool ask_cell(struct search *q, struct executor_cell *s, const struct cell *cell)
{
    struct err e = {0};
    bool fresh = s->pg == NULL;
    int has = connect_cell(q, s, cell) == 0 ? run_once(q, s, cell, &e) : -1;
    if (has < 0 && e.kind == ERR_AWAY && !fresh) {
        close_session(s);
        has = connect_cell(q, s, cell) == 0 ? run_once(q, s, cell, &e) : -1;
    }
    if (has < 0 && s->pg != NULL)
        note_failure(s, cell, &e);
    if (has < 0) {
        size_t used = strlen(q->away);
        snprintf(q->away + used, sizeof q->away - used, "%s%s", used > 0 ? ", " : "", cell->name);
    }
    return has > 0;
}

static const struct cell *find_cell(struct search *q, const struct message_id *id)
{
    const struct cells *cells = q->runtime->cells;
    size_t order[CELLS_MAX];
    cells_order(cells, id, order);
    for (size_t i = 0; i < cells->count; i++) {
        const struct cell *cell = &cells->list[order[i]];
        struct executor_cell *s = &q->sessions->each[order[i]];
        if (is_own(q->runtime, cell))
            continue;
        if (ask_cell(q, s, cell))
            return cell;
    }
    return NULL;
}

void executor_cells_ask(struct executor *d, struct executor_cells *sessions, const struct api_context *own,
                        struct api_request *r)
{
    struct message_id id;
    bool has_id = r->id.len > 0;
    if (d->runtime->cells == NULL || !r->op->in_cells || r->answer.problem != API_NOT_FOUND ||
        (has_id && !message_id_parse(r->id, &id)))
        return;
    struct api_answer none = r->answer;
    struct search q = {.runtime = d->runtime,
                       .sessions = sessions,
                       .context = *own,
                       .request = r,
                       .end_ms = clock_monotonic_ms() + SEARCH_MS};
    api_answer_open(&r->answer);
    const struct cell *cell = find_cell(&q, has_id ? &id : NULL);
    if (cell != NULL) {
        name_cell(&r->answer, cell);
        api_answer_close(&none);
        return;
    }
    api_answer_close(&r->answer);
    r->answer = none;
    if (q.away[0] != '\0')
        api_fail(&r->answer, API_DATABASE_AWAY,
                 "no cell that answered has it, and cell %s could not be asked: try again in a moment",
                 q.away);
}

void executor_cells_close(struct executor_cells *sessions, bool only_idle)
{
    for (size_t i = 0; i < CELLS_MAX; i++) {
        struct executor_cell *s = &sessions->each[i];
        if (s->pg != NULL && (!only_idle || clock_monotonic_ms() - s->used_ms >= IDLE_MS))
            close_session(s);
    }
}
