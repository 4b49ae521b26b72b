#include "gateway/config/cells.h"

#include "core/base/bytes.h"
#include "gateway/config/config_table.h"
#include "gateway/config/ini_file.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTION "cell "
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

struct reader {
    struct cells *cells;
    struct cell *at;       /* of this section; NULL: it is none, which was reported */
    int begun[CELLS_MAX];  /* lines: of its section … */
    int number[CELLS_MAX]; /* … and of its number; 0: none */
};

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= CELL_NAME_MAX && strspn(name, NAME_CHARACTERS) == len;
}

static void begin_cell(struct ini_file *f)
{
    struct reader *r = f->ctx;
    const char *name = f->section + strlen(SECTION);
    r->at = NULL;
    if (strncmp(f->section, SECTION, strlen(SECTION)) != 0 || !is_name(name)) {
        ini_file_mistake(
            f,
            "unknown section [%s]: allowed is [cell NAME], with a name of 1 to %d letters, digits, "
            "'.', '_' and '-'",
            f->section, CELL_NAME_MAX);
        return;
    }
    for (size_t i = 0; i < r->cells->count; i++)
        if (strcmp(r->cells->list[i].name, name) == 0) {
            ini_file_mistake(f, "cell %s: begun before, on line %d", name, r->begun[i]);
            return;
        }
    if (r->cells->count == CELLS_MAX) {
        ini_file_mistake(f, "cell %s: it is one too many: allowed are 1 to %d cells", name, CELLS_MAX);
        return;
    }
    r->begun[r->cells->count] = f->line;
    r->at = &r->cells->list[r->cells->count++];
    *r->at = (struct cell){.number = -1};
    snprintf(r->at->name, sizeof r->at->name, "%s", name);
}

static void take_url(struct ini_file *f, struct cell *cell, const char *value)
{
    const struct option *o = option_find("postgres", "url");
    struct err e;
    if (cell->postgres_url != NULL)
        ini_file_mistake(f, "cell %s: postgres.url is set before", cell->name);
    else if (*value == '\0')
        ini_file_mistake(f, "cell %s: postgres.url is empty: it needs an address", cell->name);
    else if (o->check(value, &e) != 0)
        ini_file_mistake(f, "cell %s: postgres.url %s", cell->name, e.text);
    else if ((cell->postgres_url = strdup(value)) == NULL)
        ini_file_mistake(f, "out of memory");
    f->secret = f->secret || ini_file_has_password(value);
}

static void take_number(struct ini_file *f, struct reader *r, const char *value)
{
    size_t at = (size_t)(r->at - r->cells->list);
    size_t len = strlen(value);
    long n = len >= 1 && len <= 3 && strspn(value, "0123456789") == len ? strtol(value, NULL, 10) : -1;
    if (r->number[at] != 0)
        ini_file_mistake(f, "cell %s: number is set before, on line %d", r->at->name, r->number[at]);
    else if (n < 0 || n > 255)
        ini_file_mistake(f, "cell %s: number: \"%.20s\" is not allowed: write a whole number from 0 to 255",
                         r->at->name, value);
    else
        r->at->number = (int)n;
    for (size_t i = 0; n >= 0 && i < r->cells->count; i++)
        if (i != at && r->cells->list[i].number == n)
            ini_file_mistake(f, "cell %s: cell %s has the number %ld, too (line %d)", r->at->name,
                             r->cells->list[i].name, n, r->number[i]);
    r->number[at] = f->line;
}

static void take_key(struct ini_file *f, const char *name, const char *value)
{
    struct reader *r = f->ctx;
    if (r->at == NULL)
        return;
    if (strcmp(name, "postgres.url") == 0)
        take_url(f, r->at, value);
    else if (strcmp(name, "number") == 0)
        take_number(f, r, value);
    else
        ini_file_mistake(f, "cell %s: unknown option %.80s: allowed are postgres.url and number", r->at->name,
                         name);
}

int cells_load(struct cells *c, const char *path, const struct config_report *report, struct err *e)
{
    struct err ignored = {0};
    struct config_loader l = {.report = report, .e = e != NULL ? e : &ignored};
    struct reader r = {.cells = c};
    struct ini_file f = {.loader = &l, .path = path, .begin = begin_cell, .take = take_key, .ctx = &r};
    memset(c, 0, sizeof *c);
    err_clear(l.e);
    if (ini_file_read(&f, "chmod o-r") != 0) {
        config_unread(&l, path, "the list of cells", errno, "it is larger than 1 MiB");
        return -1;
    }
    for (size_t i = 0; i < c->count && l.mistakes == 0; i++)
        if (c->list[i].postgres_url == NULL)
            config_mistake(&l, path, r.begun[i], "cell %s has no postgres.url", c->list[i].name);
    if (c->count == 0 && l.mistakes == 0)
        config_mistake(&l, path, 0, "it names no cell: allowed are 1 to %d sections [cell NAME]", CELLS_MAX);
    if (l.mistakes == 0)
        return 0;
    cells_free(c);
    return -1;
}

void cells_free(struct cells *c)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->list[i].postgres_url != NULL)
            explicit_bzero(c->list[i].postgres_url, strlen(c->list[i].postgres_url));
        free(c->list[i].postgres_url);
    }
    c->count = 0;
}

void cells_order(const struct cells *c, const struct message_id *id, size_t out[CELLS_MAX])
{
    size_t n = 0;
    for (int named = 1; named >= 0; named--)
        for (size_t i = 0; i < c->count; i++)
            if ((id != NULL && c->list[i].number == message_id_cell(*id)) == named)
                out[n++] = i;
}

bool cells_may_have(const struct cells *c, struct message_id id)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->list[i].number < 0 || c->list[i].number == message_id_cell(id))
            return true;
    return false;
}
