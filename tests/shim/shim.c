/* The options, counting, and dying. */
#include "tests/shim/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_BYTES 64

enum mode { ONCE, FOREVER, SHORT };

/* Written by the constructor, then only read; the counts apart. */
static struct {
    char point[NAME_MAX_BYTES];
    bool cut; /* there only the connection ends */
    unsigned long point_at;
    atomic_ulong point_count;
    char call[NAME_MAX_BYTES];
    char scope[NAME_MAX_BYTES];
    unsigned long call_at;
    enum mode mode;
    atomic_ulong call_count;
    atomic_bool said;
    uintptr_t code_from, code_to; /* whose allocations fail; 0, 0: everybody's */
} shim;

/* Nothing here may allocate or use stdio's locks: it also runs inside malloc. */
static void say(const char *what, const char *name, const char *more, unsigned long number)
{
    char text[200];
    int n = snprintf(text, sizeof text, "shim: %s %s%s, time %lu\n", what, name, more, number);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        return; /* nobody listens */
}

static _Noreturn void give_up(const char *name, const char *value, const char *allowed)
{
    char text[300];
    int n = snprintf(text, sizeof text, "shim: %s=%s: allowed is %s\n", name, value, allowed);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(64);
    _exit(64);
}

void *shim_next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) {
        say("no function", name, "", 0);
        _exit(70);
    }
    return f;
}

bool shim_reach(const char *what, const char *side)
{
    size_t n = strlen(what);
    if (strncmp(shim.point, what, n) != 0 || shim.point[n] != '.' || strcmp(shim.point + n + 1, side) != 0)
        return false;
    return atomic_fetch_add(&shim.point_count, 1) + 1 == shim.point_at;
}

void shim_end(const char *what, const char *side)
{
    char more[NAME_MAX_BYTES];
    snprintf(more, sizeof more, ".%s", side);
    say(shim.cut ? "cut at" : "died at", what, more, shim.point_at);
    if (shim.cut)
        return;
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

bool shim_point(const char *what, const char *side)
{
    if (!shim_reach(what, side))
        return false;
    shim_end(what, side);
    return true;
}

static bool in_scope(const void *caller, enum shim_role role)
{
    if (role == SHIM_NO_SERVER) {
        uintptr_t at = (uintptr_t)caller;
        return shim.code_to == 0 || (at >= shim.code_from && at < shim.code_to);
    }
    if (strcmp(shim.scope, "amqp") == 0)
        return role != SHIM_POSTGRES;
    if (!shim.scope[0] || strcmp(shim.scope, "any") == 0)
        return true;
    if (strcmp(shim.scope, "postgres") == 0)
        return role == SHIM_POSTGRES;
    return shim_statement && strcmp(shim.scope, shim_statement) == 0;
}

enum shim_failure shim_failure_now(const char *call, const void *caller, enum shim_role role)
{
    if (shim.call_at == 0 || strcmp(call, shim.call) != 0 || !in_scope(caller, role))
        return SHIM_GO_ON;
    unsigned long n = atomic_fetch_add(&shim.call_count, 1) + 1;
    if (shim.mode == FOREVER ? n < shim.call_at : n != shim.call_at)
        return SHIM_GO_ON;
    if (!atomic_exchange(&shim.said, true))
        say("failed", call, "", n);
    return shim.mode == SHORT ? SHIM_SHORT : SHIM_FAIL;
}

static int find_code(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    const char *wanted = arg;
    bool is_program = info->dlpi_name[0] == '\0'; /* the program comes first and has no name */
    if (wanted ? !strstr(info->dlpi_name, wanted) : !is_program)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        shim.code_from = info->dlpi_addr + p->p_vaddr;
        shim.code_to = shim.code_from + p->p_memsz;
    }
    return 1;
}

static unsigned long number_of(const char *text, char **end)
{
    errno = 0;
    unsigned long n = strtoul(text, end, 10);
    return errno == 0 && *end != text ? n : 0;
}

/* The first part of the text, up to `end`. */
static bool take_name(char *out, const char *text, size_t n)
{
    if (n == 0 || n >= NAME_MAX_BYTES)
        return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

static void read_point(const char *name, const char *value)
{
    static const char allowed[] = "POINT or POINT:N, N from 1; tests/shim/points.txt has the points";
    size_t n = strcspn(value, ":");
    char *end = NULL;
    shim.point_at = 1;
    if (value[n] == ':')
        shim.point_at = number_of(value + n + 1, &end);
    if (!take_name(shim.point, value, n) || shim.point_at == 0 || (end && *end) || !strchr(shim.point, '.'))
        give_up(name, value, allowed);
}

static bool read_mode(const char *text, size_t n)
{
    static const char *const names[] = {"once", "forever", "short"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && strncmp(names[i], text, n) == 0) {
            shim.mode = (enum mode)i;
            return true;
        }
    return false;
}

static void read_fail(const char *value)
{
    static const char allowed[] =
        "CALL:N[:once|:forever|:short][@SCOPE], CALL one of malloc, send, recv, connect, poll; N from 1";
    static const char *const calls[] = {"malloc", "send", "recv", "connect", "poll"};
    size_t n = strcspn(value, ":");
    bool known = false;
    if (!take_name(shim.call, value, n) || value[n] != ':')
        give_up("POSTDATE_FAIL", value, allowed);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        known = known || strcmp(calls[i], shim.call) == 0;
    char *at = NULL;
    unsigned long number = number_of(value + n + 1, &at);
    if (*at == ':') {
        size_t m = strcspn(at + 1, "@");
        known = known && read_mode(at + 1, m);
        at += 1 + m;
    }
    if (*at == '@') {
        known = known && take_name(shim.scope, at + 1, strlen(at + 1));
        at += strlen(at);
    }
    if (!known || number == 0 || *at)
        give_up("POSTDATE_FAIL", value, allowed);
    if (strcmp(shim.call, "malloc") == 0 && strcmp(shim.scope, "any") != 0 &&
        dl_iterate_phdr(find_code, shim.scope[0] && strcmp(shim.scope, "program") != 0 ? shim.scope : NULL) ==
            0)
        give_up("POSTDATE_FAIL", value,
                "a scope that is program, any, or the name of a library that the program has");
    shim.call_at = number; /* last: from here on calls fail */
}

/* How far N can rise: a test asks with an N that nobody reaches. */
__attribute__((destructor)) static void finish(void)
{
    if (shim.call_at && !atomic_load(&shim.said))
        say("not failed:", shim.call, "", atomic_load(&shim.call_count));
}

__attribute__((constructor)) static void start(void)
{
    const char *crash = getenv("POSTDATE_CRASH"), *cut = getenv("POSTDATE_CUT"),
               *fail = getenv("POSTDATE_FAIL");
    if (strncmp(program_invocation_short_name, "postdate", 8) != 0)
        return;
    /* The program warns about variables of its own name that it does not know. */
    if (crash) {
        read_point("POSTDATE_CRASH", crash);
        unsetenv("POSTDATE_CRASH");
    }
    if (cut) {
        read_point("POSTDATE_CUT", cut);
        shim.cut = true;
        unsetenv("POSTDATE_CUT");
    }
    if (fail) {
        read_fail(fail);
        unsetenv("POSTDATE_FAIL");
    }
}
