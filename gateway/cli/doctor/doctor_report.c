/* Findings as lines for a person, or as objects of a JSON array. */
#include "gateway/cli/doctor/doctor.h"
#include "gateway/cli/text.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_MAX 2000

static const char *const words[] = {"ok", "warn", "FAIL", "skip"};
static const enum cli_color colors[] = {CLI_GREEN, CLI_YELLOW, CLI_RED, CLI_PLAIN};

/* Names come from servers and files. What programs print has line ends. */
static void make_shown(char *text, char out[TEXT_MAX])
{
    for (char *c = text; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
    }
    text_words(bytes_of_str(text), out, TEXT_MAX);
}

void doctor_report(struct doctor *d, enum finding status, const char *check, const char *fmt, ...)
{
    char text[TEXT_MAX], shown[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_shown(text, shown);
    d->failed += status == FINDING_FAIL;
    if (d->array == NULL) {
        printf("%s%-4s%s  %-22s  %s\n", cli_color(colors[status]), words[status], cli_color(CLI_PLAIN), check,
               shown);
        fflush(stdout);
        return;
    }
    json_t *o = json_object();
    json_object_set_new(o, "check", json_string(check));
    json_object_set_new(o, "status", json_string(status == FINDING_FAIL ? "fail" : words[status]));
    json_object_set_new(o, "detail", json_string(shown));
    json_object_set_new(o, "remedy", json_null());
    json_array_append_new(d->array, o);
}

void doctor_remedy(struct doctor *d, const char *fmt, ...)
{
    char text[TEXT_MAX], shown[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_shown(text, shown);
    if (d->array == NULL) {
        printf("      -> %s\n", shown);
        fflush(stdout);
        return;
    }
    size_t n = json_array_size(d->array);
    if (n > 0)
        json_object_set_new(json_array_get(d->array, n - 1), "remedy", json_string(shown));
}

void doctor_error(struct doctor *d, const char *check, const struct err *e)
{
    if (e->kind == ERR_BUSY) {
        doctor_report(d, FINDING_SKIP, check, "could not be checked: %s", e->text);
        doctor_remedy(d, "run `postdate doctor` again when the server is less busy");
        return;
    }
    doctor_report(d, FINDING_FAIL, check, "%s", e->text);
    doctor_remedy(d, e->kind == ERR_AWAY ? "see whether the server runs, and its log"
                     : e->kind == ERR_NOT_FOUND
                         ? "start the node that the text names; if it runs, restart it: the process of the "
                           "queue has ended there"
                     : e->kind == ERR_PERMISSION ? "give the login the right that the text names"
                                                 : "see the text, and the server's log");
}
