/* Findings as lines for a person, or as objects of a JSON array. */
#include "gateway/cli/doctor/doctor.h"
#include "gateway/cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 2000

static const char *const words[] = {"ok", "warn", "FAIL", "skip"};
static const enum cli_color colors[] = {CLI_GREEN, CLI_YELLOW, CLI_RED, CLI_PLAIN};

/* Names come from servers and files. What programs print has line ends. */
static const char *make_shown(char *text, char out[TEXT_MAX])
{
    for (char *c = text; (c = strpbrk(c, "\n\r\t")) != NULL;)
        *c = ' ';
    return text_words(bytes_of_str(text), out, TEXT_MAX);
}

static void print_finding(enum finding status, const char *check, const char *detail, const char *remedy)
{
    printf("%s%-4s%s  %-22s  %s\n", cli_color(colors[status]), words[status], cli_color(CLI_PLAIN), check,
           detail);
    if (remedy != NULL)
        printf("      -> %s\n", remedy);
    fflush(stdout);
}

void doctor_report(struct doctor *d, enum finding status, const char *check, const char *fmt, ...)
{
    char text[2 * TEXT_MAX], detail[TEXT_MAX], how[TEXT_MAX];
    const char *remedy = NULL;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    char *mark = strstr(text, REMEDY);
    if (mark != NULL) {
        *mark = '\0';
        remedy = mark[1] != '\0' ? make_shown(mark + 1, how) : NULL;
    }
    make_shown(text, detail);
    d->failed += status == FINDING_FAIL;
    if (d->array == NULL)
        print_finding(status, check, detail, remedy);
    else
        json_array_append_new(d->array, json_pack("{s:s, s:s, s:s, s:s?}", "check", check, "status",
                                                  status == FINDING_FAIL ? "fail" : words[status], "detail",
                                                  detail, "remedy", remedy));
}

enum finding doctor_status(const char *word)
{
    return word[0] == 'o'   ? FINDING_OK
           : word[0] == 'w' ? FINDING_WARN
           : word[0] == 'f' ? FINDING_FAIL
                            : FINDING_SKIP;
}

void doctor_error(struct doctor *d, const char *check, const struct err *e)
{
    if (e->kind == ERR_BUSY)
        doctor_skip(d, check,
                    "could not be checked: %s" REMEDY
                    "run `postdate doctor` again when the server is less busy",
                    e->text);
    else
        doctor_fail(d, check, "%s" REMEDY "%s", e->text,
                    e->kind == ERR_AWAY         ? "check that the server runs, and read its log"
                    : e->kind == ERR_NOT_FOUND  ? "start the node named in the text; if it runs, restart it: "
                                                  "the queue's process on it has ended"
                    : e->kind == ERR_PERMISSION ? "give the login the permission named in the text"
                                                : "see the error, and the server's log");
}
