/* Prints the table of options, section by section: "md" for docs/configuration.md, "5" for
 * man/postdate.conf.5. `make` with the page's name puts them into it, `make check` compares. */
#include "gateway/config/config_table.h"

#include <inttypes.h>
#include <stdbool.h>
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

static void print_allowed(const struct option *o, const char *quote)
{
    switch (o->kind) {
    case OPTION_CHOICE:
    case OPTION_FLAG:
        for (size_t i = 0; o->choices[i] != NULL; i++)
            printf("%s%s%s%s", i > 0 ? ", " : "", quote, o->choices[i], quote);
        break;
    case OPTION_TEXT:
        printf("%s", o->secret ? "address" : o->optional && o->check == NULL ? "path" : "text");
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

static void print_row(const struct option *o, bool new_section, bool first)
{
    if (new_section)
        printf("%s### [%s]\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n",
               first ? "" : "\n", o->section);
    printf("| `%s.%s` | ", o->section, o->name);
    printf(*o->initial != '\0' ? "`%s` | " : "not set | ", o->initial);
    print_allowed(o, "`");
    printf(" | %s |\n", o->help);
}

/* mdoc(7) */
static void print_item(const struct option *o, bool new_section, bool first)
{
    if (new_section)
        printf("%s.Ss [%s]\n.Bl -tag -width Ds\n", first ? "" : ".El\n", o->section);
    printf(".It Cm %s\n", o->name);
    for (const char *c = o->help; *c != '\0'; c++)
        putchar(*c == '`' ? '"' : *c);
    printf(".\nDefault: %s.\nAllowed: ", *o->initial != '\0' ? o->initial : "not set");
    print_allowed(o, "");
    printf(".\n");
}

int main(int argc, char **argv)
{
    bool manual = argc > 1 && strcmp(argv[1], "5") == 0;
    const char *section = "";
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        (manual ? print_item : print_row)(o, strcmp(section, o->section) != 0, i == 0);
        section = o->section;
    }
    if (manual)
        printf(".El\n");
    return 0;
}
