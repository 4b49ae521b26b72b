/* Prints the tables of docs/configuration.md from the table of options: one table for each section.
 * `make docs/configuration.md` puts them into the page, `make check` compares. */
#include "gateway/config/config_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    int64_t size;
    const char *name;
};

/* The largest unit that divides the value, as a user would write it. */
static void print_in_units(int64_t value, const struct unit *units)
{
    while (units->size > 1 && value % units->size != 0)
        units++;
    printf("%" PRId64 "%s", value / units->size, value == 0 ? "" : units->name);
}

static void print_limit(const struct option *o, int64_t value)
{
    static const struct unit durations[] = {
        {86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    static const struct unit sizes[] = {{1048576, "MiB"}, {1024, "KiB"}, {1, ""}};
    static const struct unit plain[] = {{1, ""}};
    print_in_units(value, o->kind == OPTION_DURATION ? durations : o->kind == OPTION_SIZE ? sizes : plain);
}

static void print_allowed(const struct option *o)
{
    switch (o->kind) {
    case OPTION_CHOICE:
    case OPTION_FLAG:
        for (size_t i = 0; o->choices[i] != NULL; i++)
            printf("%s`%s`", i > 0 ? ", " : "", o->choices[i]);
        break;
    case OPTION_TEXT:
        printf("%s", o->secret ? "address" : o->optional ? "path" : "text");
        break;
    case OPTION_LIST:
        printf("list of names");
        break;
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_INTEGER:
        print_limit(o, o->min);
        printf(" to ");
        print_limit(o, o->max);
        break;
    }
}

int main(void)
{
    const char *section = "";
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        if (strcmp(section, o->section) != 0)
            printf("%s### [%s]\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n",
                   i > 0 ? "\n" : "", o->section);
        section = o->section;
        printf("| `%s.%s` | ", o->section, o->name);
        printf(*o->initial != '\0' ? "`%s` | " : "none | ", o->initial);
        print_allowed(o);
        printf(" | %s |\n", o->help);
    }
    return 0;
}
