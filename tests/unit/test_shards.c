/* The steps by which messages are spread over several queues, against a RabbitMQ that knows bindings alone,
 * and a database that knows one row. Whatever gateways want, and wherever one of them dies: each source leads
 * to some queue, and to no two of them, also for what RabbitMQ began to route before the last pause. */
#include "amqp/topology/topology_shards.h"
#include "core/base/clock.h"
#include "gateway/runtime/shards_run.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = 3, SOURCES = 3, QUEUES = 5, GATEWAYS = 3, ROUNDS = 20000 };
#define FIRST "in"

static const struct shards_way ways[WAYS] = {
    {"a", "x.a", "x-random", "plugin_a", NULL},
    {"b", "x.b", "x-random", "plugin_b", NULL},
    {"c", "x.c", "x-consistent-hash", "plugin_c", NULL},
};
static const char *const names[SOURCES] = {"s0", "s1", "s2"};

/* --- RabbitMQ. A path of a source is its direct binding (number WAYS), or one to a way. */
static struct {
    bool there, bound;
    bool path[WAYS + 1], lately[WAYS + 1]; /* lately: since the last pause */
} sources[SOURCES];
static bool bound[WAYS][QUEUES + 1], leads[WAYS][QUEUES + 1]; /* leads: what is bound is in the ring, too */
static bool there[WAYS];                                      /* the exchange */
static int half_way = -1;                                     /* of it a first binding may be done by half */
static bool doubles_fine;  /* what was done behind the database's back is about to be undone */
static int fuse;           /* so many requests are answered yet; -1: all */
static const char *plugin; /* one that is missing */

static int number_of(const char *queue)
{
    return strcmp(queue, FIRST) == 0 ? 1 : (int)strtol(queue + strlen(FIRST) + 1, NULL, 10);
}

static int source_of(const char *exchange)
{
    for (int i = 0; i < SOURCES; i++)
        if (strcmp(names[i], exchange) == 0)
            return i;
    fail_msg("no source is called %s", exchange);
    return 0;
}

static int way_of(const char *exchange)
{
    for (int w = 0; w < WAYS; w++)
        if (strcmp(ways[w].exchange, exchange) == 0)
            return w;
    return -1;
}

static int count_leads(int way)
{
    int n = 0;
    for (int q = 1; q <= QUEUES; q++)
        n += leads[way][q];
    return n;
}

static bool is_wide(int path)
{
    return path < WAYS && count_leads(path) > leads[path][1];
}

struct row {
    int queues, most, by, done;
    bool moving, sources[SOURCES];
};
static struct row stored, open_row; /* the database's; and in a transaction */

static void check_all(void)
{
    for (int q = stored.most + 1; q <= QUEUES; q++)
        for (int w = 0; w < WAYS; w++)
            assert_true(!leads[w][q] || doubles_fine); /* nobody would read it */
    for (int i = 0; i < SOURCES; i++) {
        int now = 0, any = 0, wide = 0;
        for (int p = 0; p <= WAYS; p++) {
            now += sources[i].path[p] && (p == WAYS || count_leads(p) > 0);
            any += sources[i].path[p] || sources[i].lately[p];
            wide += (sources[i].path[p] || sources[i].lately[p]) && is_wide(p);
        }
        sources[i].bound |= now > 0;
        if (sources[i].bound && now == 0)
            fail_msg("what is published to %s gets nowhere", names[i]);
        if (any > 1 && wide > 0 && !doubles_fine)
            fail_msg("what is published to %s may get to two queues", names[i]);
    }
}

/* The request is not done, or nobody hears that it was. */
static bool is_lost(struct err *e)
{
    if (fuse > 0)
        fuse--;
    else if (fuse == 0)
        err_set(e, ERR_AWAY, "gone");
    return fuse == 0 && rand() % 2 == 0;
}

static int answer(void)
{
    check_all();
    return fuse == 0 ? -1 : 0;
}

static int set_path(int source, int path, bool to, struct err *e)
{
    if (to && !sources[source].there)
        return err_set(e, ERR_NOT_FOUND, "no exchange");
    if (!is_lost(e)) {
        sources[source].path[path] = to;
        sources[source].lately[path] |= to;
    }
    return answer();
}

int broker_declare_exchange_as(struct broker *b, const struct broker_exchange *x, struct err *e)
{
    (void)b;
    int w = way_of(x->name);
    assert_true(w >= 0 && x->internal);
    if (plugin && strcmp(ways[w].plugin, plugin) == 0)
        return err_set(e, ERR_CONFIG, "unknown type");
    there[w] |= !is_lost(e);
    return answer();
}

int broker_bind_queue(struct broker *b, const struct broker_binding *x, struct err *e)
{
    (void)b;
    if (!x->key)
        return set_path(source_of(x->from), WAYS, true, e);
    int w = way_of(x->from), q = number_of(x->to);
    if (!is_lost(e)) {
        if (!bound[w][q])
            leads[w][q] = fuse != 0 || w != half_way || count_leads(w) > 0 || rand() % 2 == 0;
        bound[w][q] = true;
    }
    return answer();
}

int broker_unbind_queue(struct broker *b, const struct broker_binding *x, struct err *e)
{
    (void)b;
    if (!x->key)
        return set_path(source_of(x->from), WAYS, false, e);
    int w = way_of(x->from), q = number_of(x->to);
    if (!is_lost(e) && q <= QUEUES)
        bound[w][q] = leads[w][q] = false;
    return answer();
}

int broker_bind_exchange(struct broker *b, const struct broker_binding *x, struct err *e)
{
    (void)b;
    return set_path(source_of(x->from), way_of(x->to), true, e);
}

int broker_unbind_exchange(struct broker *b, const struct broker_binding *x, struct err *e)
{
    (void)b;
    return set_path(source_of(x->from), way_of(x->to), false, e);
}

bool broker_lacks_type(struct broker *b, const struct broker_exchange *x, const char *needs, struct err *e)
{
    (void)b, (void)x;
    err_set(e, ERR_CONFIG, "rabbitmq-plugins enable %s", needs);
    return true;
}

int broker_recover(struct broker *b, struct err *e)
{
    (void)b, (void)e;
    return 0;
}

int broker_has_exchange(struct broker *b, const char *name, struct err *e)
{
    (void)b;
    (void)is_lost(e);
    return answer() ? -1 : there[way_of(name)];
}

void clock_nap_ms(int64_t ms)
{
    assert_true(ms == SHARDS_SETTLE_MS);
    for (int i = 0; i < SOURCES; i++)
        memcpy(sources[i].lately, sources[i].path, sizeof sources[i].lately);
}

/* --- the database */
static bool has_all(const struct shards_place *p)
{
    for (size_t i = 0; i < p->source_count; i++)
        if (!open_row.sources[source_of(p->sources[i])])
            return false;
    return true;
}

int shards_lock(struct pg *c, const struct shards_place *p, const struct shards_wish *wish,
                struct shards_record *out, struct err *e)
{
    static const char *list[SOURCES];
    (void)c, (void)e;
    open_row = stored;
    bool grows = wish && wish->queues > stored.most;
    if (wish) {
        open_row.queues = wish->queues;
        open_row.most = wish->queues > open_row.most ? wish->queues : open_row.most;
        open_row.by = wish->by[0] - 'a';
    }
    *out = (struct shards_record){.queues = open_row.queues,
                                  .most = open_row.most,
                                  .grows = grows,
                                  .used = open_row.done >= 0,
                                  .settled = !open_row.moving && open_row.done == open_row.by && has_all(p),
                                  .moving = open_row.moving && has_all(p),
                                  .fresh = !open_row.moving && open_row.done != open_row.by,
                                  .sources = list};
    snprintf(out->by, sizeof out->by, "%s", ways[open_row.by].name);
    for (int i = 0; i < SOURCES; i++)
        if (open_row.sources[i])
            list[out->source_count++] = names[i];
    return 0;
}

void shards_record_free(struct shards_record *r)
{
    r->sources = NULL;
}

int shards_unmark(struct pg *c, const struct shards_place *p, struct err *e)
{
    (void)c, (void)e;
    open_row.moving = true;
    for (size_t i = 0; i < p->source_count; i++)
        open_row.sources[source_of(p->sources[i])] = true;
    return 0;
}

int shards_mark(struct pg *c, const struct shards_place *p, struct err *e)
{
    (void)c, (void)p, (void)e;
    open_row.moving = false;
    open_row.done = open_row.by;
    return 0;
}

/* Now and then a commit is lost, or its answer. */
int shards_unlock(struct pg *c, int rc, struct err *e)
{
    (void)c;
    bool dies = fuse >= 0 && rand() % 8 == 0, done = rc == 0 && (!dies || rand() % 2 == 0);
    if (done)
        stored = open_row;
    return rc == 0 && dies ? err_set(e, ERR_AWAY, "gone") : rc;
}

/* --- gateways */
struct gateway {
    struct shards_wish wish;
    const char *sources[SOURCES];
    size_t source_count;
};

static int declare(void *ctx, enum topology_step step, const struct shards_record *r, struct err *e)
{
    const struct gateway *g = ctx;
    bool narrow = step == TOPOLOGY_NARROW;
    struct shards_source list[SOURCES];
    size_t count = narrow ? r->source_count : g->source_count;
    for (size_t i = 0; i < g->source_count; i++)
        sources[source_of(g->sources[i])].there = true;
    for (size_t i = 0; i < count; i++)
        list[i] = (struct shards_source){narrow ? r->sources[i] : g->sources[i], NULL};
    const struct shards s = {.queue = FIRST,
                             .queues = r->queues,
                             .most = r->used || !narrow ? r->most : SHARDS_MAX,
                             .ways = ways,
                             .way_count = WAYS,
                             .way = (size_t)(r->by[0] - 'a'),
                             .sources = list,
                             .source_count = count};
    half_way = step == TOPOLOGY_WIDEN || step == TOPOLOGY_DIRECT ? -1 : (int)s.way;
    if (step != TOPOLOGY_DIRECT)
        return step == TOPOLOGY_PREPARE  ? shards_prepare(NULL, &s, e)
               : step == TOPOLOGY_NARROW ? shards_narrow(NULL, &s, e)
                                         : shards_widen(NULL, &s, e);
    for (size_t i = 0; i < count; i++)
        if (set_path(source_of(list[i].exchange), WAYS, true, e))
            return -1;
    return shards_leave(NULL, &s, e);
}

static void configure(struct gateway *g)
{
    *g = (struct gateway){.wish = {1 + rand() % QUEUES, ways[rand() % WAYS].name}, .sources = {names[0]}};
    g->source_count = 1;
    for (int i = 1; i < SOURCES; i++)
        if (rand() % 2 == 0)
            g->sources[g->source_count++] = names[i];
}

static int run(struct gateway *g, bool starts, struct err *e)
{
    const struct shards_job job = {
        {"intake", g->sources, g->source_count}, starts ? &g->wish : NULL, declare, g};
    return shards_run(NULL, &job, e);
}

static void begin(void)
{
    memset(sources, 0, sizeof sources);
    memset(leads, 0, sizeof leads);
    memset(bound, 0, sizeof bound);
    memset(there, 0, sizeof there);
    doubles_fine = false;
    stored = (struct row){.queues = 1, .most = 1, .done = -1};
    fuse = -1;
    plugin = NULL;
}

/* Somebody deletes an exchange: its bindings go, too. */
static void delete_some_source(void)
{
    memset(&sources[rand() % SOURCES], 0, sizeof sources[0]);
}

/* Or the first queue, and a publisher declares it anew. */
static void unbind_first_queue(void)
{
    for (int w = 0; w < WAYS; w++)
        if (is_wide(w))
            leads[w][1] = bound[w][1] = false;
}

static void check_done(const struct gateway *g)
{
    const struct row *r = &stored;
    for (size_t k = 0; k < g->source_count; k++)
        for (int p = 0; p <= WAYS; p++)
            assert_int_equal(sources[source_of(g->sources[k])].path[p], p == (r->done < 0 ? WAYS : r->by));
    if (r->done >= 0)
        assert_int_equal(count_leads(r->by), r->queues);
}

#define SEEDS 10

static void whatever_happens(unsigned seed)
{
    struct gateway gateways[GATEWAYS];
    struct err e;
    srand(seed);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 100 == 0) {
            begin();
            for (int g = 0; g < GATEWAYS; g++)
                configure(&gateways[g]);
        }
        struct gateway *g = &gateways[rand() % GATEWAYS];
        bool starts = rand() % 3 == 0;
        if (starts)
            configure(g);
        if (rand() % 20 == 0)
            delete_some_source();
        if (rand() % 20 == 0)
            unbind_first_queue();
        bool lives = rand() % 3 == 0;
        fuse = lives ? -1 : rand() % (rand() % 2 == 0 ? 30 : 400);
        int rc = run(g, starts, &e);
        assert_true(rc == 0 || !lives);
        if (rc == 0)
            check_done(g);
    }
}

TEST(test_whatever_happens)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++)
        whatever_happens(seed);
}

static struct gateway only = {.sources = {"s0"}, .source_count = 1};

static void start_only(int queues, const char *by)
{
    struct err e;
    only.wish = (struct shards_wish){queues, by};
    assert_int_equal(run(&only, true, &e), 0);
    check_done(&only);
}

/* What a gateway asked for that is dead by now is done after another has moved all. */
TEST(test_what_is_done_late_is_undone)
{
    struct err e;
    begin();
    start_only(3, "a");
    start_only(3, "b");
    sources[0].path[0] = sources[0].path[WAYS] = doubles_fine = true;
    assert_int_equal(run(&only, false, &e), 0);
    check_done(&only);
}

/* As with Khepri, where a node died between its two writes. */
TEST(test_a_binding_is_missing_in_the_ring)
{
    begin();
    start_only(1, "a");
    bound[2][1] = there[2] = true;
    start_only(3, "c");
}

/* Of the vhost it knows nothing. */
TEST(test_a_database_is_new)
{
    for (int queues = 1; queues <= 2; queues++)
        for (int by = 0; by < WAYS; by++) {
            begin();
            start_only(QUEUES, ways[2].name);
            stored = (struct row){.queues = 1, .most = 1, .done = -1};
            doubles_fine = true;
            start_only(queues, ways[by].name);
        }
}

TEST(test_a_missing_plugin_changes_nothing)
{
    struct err e;
    begin();
    start_only(1, "a");
    only.wish.queues = 3;
    plugin = "plugin_a";
    const struct row before = stored;
    assert_int_equal(run(&only, true, &e), -1);
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "rabbitmq-plugins enable plugin_a"));
    assert_memory_equal(&before, &stored, sizeof stored);
    assert_true(sources[0].path[WAYS] && !sources[0].path[0]);
}

TEST(test_names)
{
    char name[SHARDS_NAME_SIZE];
    shards_queue_name("postdate.intake", 1, name);
    assert_string_equal(name, "postdate.intake");
    shards_queue_name("postdate.intake", 64, name);
    assert_string_equal(name, "postdate.intake.64");
}
