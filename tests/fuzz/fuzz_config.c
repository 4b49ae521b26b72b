/* A configuration file: mistakes are told in words, what is taken lies within the limits of its options. */
#include "core/base/duration.h"
#include "gateway/config/config_table.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int reports;

static void on_report(void *ctx, const char *text)
{
    (void)ctx;
    reports++;
    fuzz_check_reason(bytes_of_str(text));
}

static void on_mistake(void *ctx, enum err_kind kind, const char *text)
{
    (void)kind;
    on_report(ctx, text);
}

static void check_number(const struct option *o, const struct config *c)
{
    int64_t n;
    memcpy(&n, (const char *)c + o->offset, sizeof(n));
    FUZZ_HOLDS((n >= o->min && n <= o->max) || (o->optional && n == -1));
}

static void check_option(const struct option *o, const struct config *c)
{
    const char *text;
    int choice;
    switch (o->kind) {
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_INTEGER:
        check_number(o, c);
        break;
    case OPTION_TEXT:
        memcpy(&text, (const char *)c + o->offset, sizeof(char *));
        FUZZ_HOLDS(o->optional || (text && *text));
        break;
    case OPTION_CHOICE:
        memcpy(&choice, (const char *)c + o->offset, sizeof(choice));
        for (int i = 0; i < choice; i++)
            FUZZ_HOLDS(o->choices[i] != NULL);
        FUZZ_HOLDS(o->choices[choice] != NULL);
        break;
    case OPTION_FLAG:
    case OPTION_LIST:
        break;
    }
}

static void check_config(const struct config *c)
{
    struct accept_rules rules = config_accept_rules(c);
    for (size_t i = 0; i < option_count; i++)
        check_option(&option_table[i], c);
    for (size_t i = 0; i < c->route_count; i++) {
        FUZZ_HOLDS(*c->routes[i].intake_exchange);
        FUZZ_HOLDS(bytes_is_text(bytes_of_str(c->routes[i].intake_exchange)));
        FUZZ_HOLDS(bytes_is_text(bytes_of_str(c->routes[i].delivery_exchange)));
    }
    for (size_t i = 0; i < c->delivery.allow_count; i++)
        FUZZ_HOLDS(bytes_is_text(bytes_of_str(c->delivery.allow[i])));
    FUZZ_HOLDS(rules.max_delay_ms > 0 && rules.delivery_exchange && rules.intake_queue);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[40];
    const struct config_report report = {.mistake = on_mistake, .warning = on_report};
    struct config c;
    struct err e = {0};
    if (fd < 0) {
        fd = memfd_create("postdate.conf", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    FUZZ_HOLDS(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    reports = 0;
    if (config_load(&c, path, &report, &e) == 0) {
        FUZZ_HOLDS(e.kind == ERR_NONE);
        check_config(&c);
        config_free(&c);
    } else {
        FUZZ_HOLDS(reports > 0);
        fuzz_check_err(&e, ERR_CONFIG);
    }
    return 0;
}
