#include "gateway/ops/tokens.h"

#include "core/base/hash.h"
#include "gateway/ops/executor_internal.h"
#include "gateway/runtime/failing.h"
#include "sql/operate/ask.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_MS 250   /* so long a token that was revoked is good for */
#define VALID_MS 5000 /* as long as that the tokens count without a look */
#define NOTE_MS 60000 /* last_used is as coarse as that */
#define PAGE_MAX ((size_t)128 * 1024 * 1024)

struct entry {
    uint8_t hash[SHA256_SIZE];
    int64_t id;
    char principal[32]; /* "token 7" */
    char name[TOKEN_NAME_MAX + 1];
    struct api_scope scope;
    atomic_bool used; /* since it was noted last */
};

/* The tokens as they were at one time; never changed after it is made. */
struct tokens_page {
    atomic_int references;
    int64_t version;
    size_t count;
    struct entry *entries; /* in the order of their hashes */
    struct arena arena;
};

struct tokens {
    struct runtime *runtime;
    struct executor_session session; /* the thread's, as the next three */
    struct notifier wake;
    int64_t noted_ms;
    pthread_t thread;
    pthread_mutex_t lock;     /* guards the next two */
    struct tokens_page *page; /* NULL: not read yet */
    int64_t looked_ms;        /* monotonic */
    atomic_bool ending;
};

static void page_unref(struct tokens_page *page)
{
    if (page == NULL || atomic_fetch_sub(&page->references, 1) > 1)
        return;
    arena_free(&page->arena);
    free(page);
}

static struct tokens_page *page_read(struct pg *pg, int64_t version, struct err *e)
{
    struct tokens_page *page = calloc(1, sizeof *page);
    struct token_record *list = NULL;
    if (page == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    atomic_store(&page->references, 1);
    page->version = version;
    arena_init(&page->arena, PAGE_MAX);
    int n = token_list(pg, &page->arena, &list, e);
    if (n >= 0)
        page->entries = arena_alloc(&page->arena, ((size_t)n + 1) * sizeof *page->entries);
    if (n < 0 || page->entries == NULL) {
        if (n >= 0)
            err_set(e, ERR_BUG, "out of memory for %d tokens", n);
        page_unref(page);
        return NULL;
    }
    page->count = (size_t)n;
    for (int i = 0; i < n; i++) {
        struct entry *x = &page->entries[i];
        memcpy(x->hash, list[i].hash.data, SHA256_SIZE); /* its query sees to the size */
        x->id = list[i].id;
        snprintf(x->principal, sizeof x->principal, "token %lld", (long long)x->id);
        memcpy(x->name, list[i].name, sizeof x->name);
        x->scope = (struct api_scope){.principal = x->principal,
                                      .name = x->name,
                                      .reads_only = list[i].reads_only,
                                      .exchanges = {.exchanges = list[i].exchanges.items,
                                                    .count = list[i].exchanges.count,
                                                    .who = x->principal}};
        for (size_t k = 0; k < list[i].exchanges.count; k++)
            if (bytes_equal_str(list[i].exchanges.items[k], TOKEN_ALL))
                x->scope.exchanges.all = true;
        atomic_init(&x->used, false);
    }
    return page;
}

/* An attacker cannot use timing to find a hash byte by byte: choosing a token whose hash is near another one
 * would mean to break SHA-256. All of a hash is compared in constant time nonetheless. */
static struct entry *find_token(const struct tokens_page *page, const uint8_t hash[SHA256_SIZE])
{
    size_t low = 0, high = page->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(page->entries[middle].hash, hash, 8) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < page->count && memcmp(page->entries[low].hash, hash, 8) == 0; low++)
        if (sha256_equal(page->entries[low].hash, hash))
            return &page->entries[low];
    return NULL;
}

static struct tokens_page *page_take(struct tokens *t)
{
    pthread_mutex_lock(&t->lock);
    bool valid = t->page != NULL && clock_monotonic_ms() - t->looked_ms <= VALID_MS;
    struct tokens_page *page = valid ? t->page : NULL;
    if (page != NULL)
        atomic_fetch_add(&page->references, 1);
    pthread_mutex_unlock(&t->lock);
    return page;
}

int tokens_admit(struct tokens *t, struct bytes token, struct tokens_grant *out, struct api_answer *a)
{
    uint8_t hash[SHA256_SIZE];
    *out = (struct tokens_grant){0};
    if (t == NULL)
        return 0;
    if (token.len == 0) {
        api_fail(a, API_UNAUTHORIZED, "http.tokens is on: send a token (see `postdate token --help`)");
        return -1;
    }
    if (!sha256(token, hash)) {
        api_fail(a, API_NOT_READY, "tokens cannot be checked: out of memory");
        return -1;
    }
    struct tokens_page *page = page_take(t);
    if (page == NULL) {
        api_fail(a, API_NOT_READY, "tokens cannot be checked: the database does not answer");
        return -1;
    }
    struct entry *x = find_token(page, hash);
    if (x == NULL) {
        page_unref(page);
        api_fail(a, API_UNAUTHORIZED, "this token is unknown, or was revoked");
        return -1;
    }
    if (!atomic_load_explicit(&x->used, memory_order_relaxed))
        atomic_store(&x->used, true);
    *out = (struct tokens_grant){.page = page, .scope = &x->scope};
    return 0;
}

void tokens_release(struct tokens_grant *grant)
{
    page_unref(grant->page);
    grant->page = NULL;
    grant->scope = NULL;
}

/* Only the thread changes t->page, so it may read it without the lock. */
static int note_used(struct tokens *t, struct err *e)
{
    struct tokens_page *page = t->page;
    if (page == NULL || page->count == 0)
        return 0;
    int64_t *ids = calloc(page->count, sizeof *ids);
    size_t n = 0;
    for (size_t i = 0; ids != NULL && i < page->count; i++)
        if (atomic_exchange(&page->entries[i].used, false))
            ids[n++] = page->entries[i].id;
    int rc = n > 0 ? token_touch(t->session.pg, ids, n, e) : 0;
    free(ids);
    return rc;
}

static int reload_tokens(struct tokens *t, struct err *e)
{
    int64_t version, began_ms = clock_monotonic_ms();
    struct tokens_page *old = NULL, *fresh = NULL;
    if (executor_session_connect(&t->session, e) != 0)
        return -1;
    if (token_version(t->session.pg, &version, e) != 0)
        return -1;
    if (t->page == NULL || t->page->version != version) {
        if (t->page != NULL && note_used(t, e) != 0)
            return -1;
        fresh = page_read(t->session.pg, version, e);
        if (fresh == NULL)
            return -1;
    }
    pthread_mutex_lock(&t->lock);
    if (fresh != NULL) {
        old = t->page;
        t->page = fresh;
    }
    t->looked_ms = began_ms;
    pthread_mutex_unlock(&t->lock);
    page_unref(old);
    if (began_ms - t->noted_ms < NOTE_MS && t->noted_ms != 0)
        return 0;
    t->noted_ms = began_ms;
    return note_used(t, e);
}

static void *tokens_thread(void *arg)
{
    struct tokens *t = arg;
    while (!atomic_load(&t->ending)) {
        struct err e = {0};
        int rc = reload_tokens(t, &e);
        if (rc == 0)
            failing_over("tokens");
        else
            executor_session_failed(&t->session, "tokens", &e);
        notifier_wait(&t->wake, -1, LOOK_MS * INT64_C(1000000));
    }
    struct err ignored = {0};
    if (t->session.pg != NULL && !pg_is_broken(t->session.pg))
        note_used(t, &ignored);
    executor_session_close(&t->session);
    return NULL;
}

struct tokens *tokens_open(struct runtime *rt, struct err *e)
{
    struct tokens *t = calloc(1, sizeof *t);
    if (t == NULL || notifier_open(&t->wake, e) != 0) {
        free(t);
        if (t == NULL)
            err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    t->runtime = rt;
    t->session = (struct executor_session){.runtime = rt, .name = "postdate tokens"};
    pthread_mutex_init(&t->lock, NULL);
    if (pthread_create(&t->thread, NULL, tokens_thread, t) == 0)
        return t;
    err_set(e, ERR_BUG, "cannot start a thread: is the limit of processes reached?");
    pthread_mutex_destroy(&t->lock);
    notifier_close(&t->wake);
    free(t);
    return NULL;
}

void tokens_close(struct tokens *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->ending, true);
    notifier_notify(&t->wake);
    pthread_join(t->thread, NULL);
    page_unref(t->page);
    pthread_mutex_destroy(&t->lock);
    notifier_close(&t->wake);
    free(t);
}
