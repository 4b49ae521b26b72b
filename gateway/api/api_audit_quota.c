/* Refusals cost nothing, so anybody can have as many as they like: the log has some lines a minute of each
 * caller, and then how many more there were. */
#include "core/base/clock.h"
#include "gateway/api/api_guard.h"
#include "gateway/runtime/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINES 10 /* of one caller, within */
#define WINDOW_MS 60000
#define CALLERS 64 /* that are known at a time; the others share the last place */

struct caller {
    char name[200]; /* as the line has it; "": free */
    int64_t since_ms;
    int lines;
    uint64_t unsaid;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards callers */
static struct caller callers[CALLERS];

/* When its minute is over. */
static void end_window(struct caller *c, int64_t now_ms, bool at_once)
{
    if (c->name[0] == '\0' || (!at_once && now_ms - c->since_ms < WINDOW_MS))
        return;
    if (c->unsaid > 0)
        log_audit("audit: by %s: %llu more refusals within a minute", c->name, (unsigned long long)c->unsaid);
    *c = (struct caller){0};
}

static struct caller *find_caller(const char *name, int64_t now_ms)
{
    struct caller *free_one = NULL;
    for (size_t i = 0; i < CALLERS - 1; i++) {
        end_window(&callers[i], now_ms, false);
        if (strcmp(callers[i].name, name) == 0)
            return &callers[i];
        if (callers[i].name[0] == '\0')
            free_one = &callers[i];
    }
    struct caller *c = free_one != NULL ? free_one : &callers[CALLERS - 1];
    end_window(c, now_ms, false);
    if (c->name[0] == '\0') {
        snprintf(c->name, sizeof c->name, "%s", free_one != NULL ? name : "others");
        c->since_ms = now_ms;
    }
    return c;
}

bool api_audit_takes(const char *name)
{
    int64_t now_ms = clock_monotonic_ms();
    pthread_mutex_lock(&lock);
    struct caller *c = find_caller(name, now_ms);
    bool takes = c->lines < LINES;
    c->lines += takes;
    c->unsaid += !takes;
    pthread_mutex_unlock(&lock);
    return takes;
}

void api_audit_flush(bool at_once)
{
    int64_t now_ms = clock_monotonic_ms();
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CALLERS; i++)
        end_window(&callers[i], now_ms, at_once);
    pthread_mutex_unlock(&lock);
}
