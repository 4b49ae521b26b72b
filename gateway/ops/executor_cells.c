/* Looks up messages that this gateway's database does not have in the databases of the other cells; a key in
 * all of them, because several cells may have it.
 *
 * Only after its own database has answered, and by the same operation with the same scope: so the answer is
 * that of a gateway of that cell, with the cell's name. A cell that does not answer is not queried for a
 * while, so that it delays only requests for messages that no other cell has. */
#include "gateway/ops/executor_internal.h"
#include "gateway/runtime/log.h"
#include "sql/admin/migrate.h"
#include "sql/pipeline/store.h"

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
    struct api_answer none; /* of an id: the answer if no cell has it */
    bool unclear;           /* one that is away may have done it */
    int64_t end_ms;
    char away[300]; /* those that could not be asked: "north, south" */
};

static void add_name(char names[300], const char *name)
{
    size_t used = strlen(names);
    snprintf(names + used, 300 - used, "%s%s", used > 0 ? ", " : "", name);
}

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
        log_warning("cell %s is unavailable: %s", cell->name, e->text);
    s->retry_at_ms = clock_monotonic_ms() + (PAUSE_MS << (s->failures < PAUSES ? s->failures : PAUSES));
    s->failures++;
    close_session(s);
    return -1;
}

/* 0: s->pg is connected. */
static int connect_cell(const struct search *q, struct executor_cell *s, const struct cell *cell)
{
    struct err e = {0};
    int64_t clock_us;
    if (s->pg != NULL)
        pg_drain_notifies(s->pg); /* whether PostgreSQL has ended it meanwhile */
    if (s->pg != NULL && !pg_is_broken(s->pg) &&
        (api_operation_repeats(q->request) || store_clock(s->pg, &clock_us, &e) == 0))
        return 0;
    close_session(s);
    if (clock_monotonic_ms() < s->retry_at_ms || clock_monotonic_ms() > q->end_ms)
        return -1;
    s->pg = pg_open_other(cell->postgres_url, "postdate http cell", ANSWER_MS, &e);
    if (s->pg == NULL || operate_hurry(s->pg, &e) != 0 || migrate_check(s->pg, "", "", false, &e) != 0)
        return note_failure(s, cell, &e);
    if (s->failures > 0)
        log_info("cell %s is available again", cell->name);
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
        api_fail(a, API_OVERLOADED, "not enough memory for this answer now");
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
 * does not have it; -1: it did not say. *unclear: and may have done it. */
static int run_once(struct search *q, struct executor_cell *s, bool *unclear, struct err *e)
{
    struct api_request *r = q->request;
    struct api_context *c = &q->context;
    begin_answer(&r->answer);
    c->pg = s->pg;
    c->wake = c->idle = c->done = false;
    s->used_ms = clock_monotonic_ms();
    int rc = api_run(c, r, e);
    if (rc == 0 && c->wake)
        store_wake(s->pg); /* it is another gateway's claimer that should look */
    if (rc == 0)
        return r->answer.problem != API_NOT_FOUND;
    *unclear |= api_is_unclear(r, e);
    if (e->kind != ERR_BUSY || *unclear)
        return -1;
    api_fail_err(&r->answer, e);
    return 1;
}

/* The first one that knows something, such as that it is a dead letter. */
static void keep_explanation(struct search *q, const struct cell *cell)
{
    struct api_answer *a = &q->request->answer;
    if (q->request->id.len == 0 || q->none.explained || !a->explained)
        return;
    struct api_answer before = q->none;
    name_cell(a, cell);
    q->none = *a;
    *a = before;
}

static bool ask_cell(struct search *q, struct executor_cell *s, const struct cell *cell)
{
    struct err e = {0};
    bool fresh = s->pg == NULL, unclear = false;
    int has = connect_cell(q, s, cell) == 0 ? run_once(q, s, &unclear, &e) : -1;
    if (has < 0 && e.kind == ERR_AWAY && !fresh && (!unclear || api_operation_repeats(q->request))) {
        close_session(s);
        has = connect_cell(q, s, cell) == 0 ? run_once(q, s, &unclear, &e) : -1;
    }
    if (has < 0 && s->pg != NULL)
        note_failure(s, cell, &e);
    q->unclear |= has < 0 && unclear;
    if (has < 0)
        add_name(q->away, cell->name);
    else if (has == 0)
        keep_explanation(q, cell);
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

/* --- of an id: until one has it */

static void ask_for_id(struct search *q, const struct message_id *id)
{
    struct api_request *r = q->request;
    q->none = r->answer;
    api_answer_open(&r->answer);
    const struct cell *cell = find_cell(q, id);
    if (cell != NULL) {
        name_cell(&r->answer, cell);
        api_answer_close(&q->none);
        return;
    }
    api_answer_close(&r->answer);
    r->answer = q->none;
    if (q->away[0] == '\0' && !q->none.explained && !cells_may_have(q->runtime->cells, *id) &&
        message_id_cell(*id) != atomic_load(&q->runtime->cell_number))
        api_fail(&r->answer, API_NOT_FOUND,
                 "no cell has it: the number of its cell is %d, which is not in cells.file (is a cell "
                 "missing there?)",
                 message_id_cell(*id));
    if (q->away[0] != '\0')
        api_fail(&r->answer, q->unclear ? API_UNKNOWN_OUTCOME : API_DATABASE_AWAY,
                 "no cell that answered has it, and cell %s could not be queried%s: try again in a moment",
                 q->away, q->unclear ? " completely, and may have done it" : "");
}

/* --- of a key: all cells, because each may have a message with it
 *
 * The answer is about a live message: it is shown, or it is too late to cancel it. If all are settled, the
 * answer is about the one settled last. So a client that cancelled a message gets that answer, also for a
 * repetition, and a client after the last delivery does not. */

struct key_search {
    struct api_answer told;
    const struct cell *cell; /* whose answer it is; NULL: the own one's */
    int64_t ended_ms;        /* its message; KEY_*, if it has not */
    char cancelled[300];     /* where something was, now or before: "north, south" */
};
#define KEY_LIVES INT64_MAX
#define KEY_NAMES_NOTHING (-1)
#define KEY_UNKNOWN (-2)

static const char *cell_name(const struct search *q, const struct cell *cell)
{
    const struct cells *cells = q->runtime->cells;
    for (size_t i = 0; cell == NULL && i < cells->count; i++)
        if (is_own(q->runtime, &cells->list[i]))
            return cells->list[i].name;
    return cell != NULL ? cell->name : "of this gateway";
}

/* Of the request's answer. -1: the cell did not say. */
static int when_ended(struct search *q, int64_t *out_ms)
{
    struct api_request *r = q->request;
    struct err e = {0};
    *out_ms = KEY_NAMES_NOTHING;
    if (r->answer.problem == API_NOT_FOUND)
        return 0;
    if (r->answer.status >= 500 || api_message_settled(&q->context, r, out_ms, &e) != 0)
        return -1;
    if (*out_ms < 0)
        *out_ms = KEY_LIVES;
    return 0;
}

static void weigh_answer(struct search *q, struct key_search *k, const struct cell *cell)
{
    struct api_request *r = q->request;
    int64_t ended_ms;
    if (r->answer.problem == API_OK && r->op->effect != API_READS)
        add_name(k->cancelled, cell_name(q, cell));
    if (when_ended(q, &ended_ms) != 0) {
        add_name(q->away, cell_name(q, cell));
    } else if (ended_ms > k->ended_ms) {
        struct api_answer before = k->told;
        k->told = r->answer;
        k->cell = cell;
        k->ended_ms = ended_ms;
        r->answer = before;
    }
}

static void tell_key(struct search *q, struct key_search *k)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    struct api_request *r = q->request;
    bool cancelled = k->cancelled[0] != '\0';
    api_answer_close(&r->answer);
    r->answer = k->told;
    r->answer.changed = cancelled;
    if (q->away[0] != '\0' && (r->op->effect != API_READS || k->ended_ms < 0)) {
        api_fail(&r->answer, cancelled || q->unclear ? API_UNKNOWN_OUTCOME : API_DATABASE_AWAY,
                 "cell %s could not be queried for this key%s: try again in a moment; %s%s%s", q->away,
                 q->unclear ? " completely, and may have done it" : "",
                 cancelled ? "cancelled in cell " : "nothing was changed in the others", k->cancelled,
                 k->ended_ms == KEY_LIVES ? "; in another one it is too late" : "");
        return;
    }
    if (cancelled && r->answer.problem == API_TOO_LATE)
        api_fail(&r->answer, API_TOO_LATE,
                 "message %s is being delivered, or was settled already; cancelled in cell %s",
                 message_id_format(r->answer.id, id), k->cancelled);
    if (k->cell != NULL)
        name_cell(&r->answer, k->cell);
}

static void ask_for_key(struct search *q)
{
    const struct cells *cells = q->runtime->cells;
    bool reads = q->request->op->effect == API_READS;
    struct key_search k = {.ended_ms = KEY_UNKNOWN};
    api_answer_open(&k.told);
    weigh_answer(q, &k, NULL);
    for (size_t i = 0; i < cells->count && !(reads && k.ended_ms == KEY_LIVES); i++)
        if (!is_own(q->runtime, &cells->list[i]) && ask_cell(q, &q->sessions->each[i], &cells->list[i]))
            weigh_answer(q, &k, &cells->list[i]);
    tell_key(q, &k);
}

/* The own database may have it, or not, and the others may then have it, too. */
static bool is_open(const struct api_request *r)
{
    enum api_problem p = r->answer.problem;
    return p == API_NOT_FOUND || (r->id.len == 0 && (p == API_OK || p == API_TOO_LATE));
}

void executor_cells_ask(struct executor *d, struct executor_cells *sessions, const struct api_context *own,
                        struct api_request *r)
{
    struct message_id id;
    if (d->runtime->cells == NULL || !r->op->in_cells || !is_open(r) ||
        (r->id.len > 0 && !message_id_parse(r->id, &id)))
        return;
    struct search q = {.runtime = d->runtime,
                       .sessions = sessions,
                       .context = *own,
                       .request = r,
                       .end_ms = clock_monotonic_ms() + SEARCH_MS};
    if (r->id.len > 0)
        ask_for_id(&q, &id);
    else
        ask_for_key(&q);
}

void executor_cells_close(struct executor_cells *sessions, bool only_idle)
{
    for (size_t i = 0; i < CELLS_MAX; i++) {
        struct executor_cell *s = &sessions->each[i];
        if (s->pg != NULL && (!only_idle || clock_monotonic_ms() - s->used_ms >= IDLE_MS))
            close_session(s);
    }
}
