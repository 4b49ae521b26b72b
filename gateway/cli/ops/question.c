#include "gateway/cli/ops/question.h"

#include "gateway/cli/text.h"
#include "gateway/ops/api_ask.h"
#include "gateway/ops/api_json_request.h"
#include "gateway/ops/api_operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MAX ((size_t)1024 * 1024)

struct asked {
    struct api_json_request read;
    struct api_request request;
    char *text; /* of the request, which points into it */
};

static void close_asked(struct asked *a)
{
    api_json_request_close(&a->read);
    api_answer_close(&a->request.answer);
    free(a->text);
}

/* "no rate is set for …": of a problem, in e; the exit code comes of its status. */
static int fail(const struct api_answer *answer, struct err *e)
{
    struct bytes body = buf_bytes(&answer->body);
    json_t *problem = json_loadb((const char *)body.data, body.len, 0, NULL);
    enum err_kind kind = answer->status == 404   ? ERR_NOT_FOUND
                         : answer->status == 500 ? ERR_BUG
                         : answer->status > 500  ? ERR_BUSY
                                                 : ERR_REJECT;
    err_set(e, kind, "%s", text_of(problem, "detail"));
    json_decref(problem);
    return -1;
}

/* The fields become a request; a is to be closed, whatever comes of it. */
static int read_request(const struct cli *cli, const json_t *fields, struct asked *a, struct err *e)
{
    const char *name = cli->verb->question->words;
    json_t *o = fields != NULL ? json_copy((json_t *)(uintptr_t)fields) : json_object();
    *a = (struct asked){0};
    api_answer_open(&a->request.answer);
    api_json_request_open(&a->read, BODY_MAX);
    json_object_set_new(o, "op", json_string(cli->verb->question->operation));
    for (int i = 0; i < cli->word_count; i++, name += strcspn(name, " ") + 1)
        if (json_object_setn_new(o, name, strcspn(name, " "), json_string(cli->words[i])) != 0)
            err_set(e, ERR_REJECT, "%.*s: is not UTF-8 text", (int)strcspn(name, " "), name);
    a->text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (e->kind != ERR_NONE)
        return -1;
    if (a->text == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    return api_json_request_read(&a->read, bytes_of_str(a->text), &a->request) == 0
               ? 0
               : fail(&a->request.answer, e);
}

int cli_question_check(struct cli *cli, void *order)
{
    const struct cli_asked *o = order;
    struct asked a;
    struct err e = {0};
    int rc = read_request(cli, o->fields, &a, &e);
    if (rc == 0)
        rc = api_ask_check(&a.request, &e);
    close_asked(&a);
    return rc == 0 ? 0 : cli_usage(cli, "%s: %s", cli->verb->name, e.text);
}

int cli_print_list(struct cli *cli, const struct sheet_cell *columns, const json_t *list)
{
    bool json = cli_gave(cli, "json");
    int code = 0;
    if (!json)
        sheet_print_heads(columns);
    for (size_t i = 0; i < json_array_size(list) && code == 0 && cli_output_error() == 0; i++) {
        if (json)
            code = cli_print_json(cli, json_incref(json_array_get(list, i)), JSON_COMPACT);
        else
            sheet_print_row(columns, json_array_get(list, i), cli->now_ms);
    }
    return code;
}

static int print_answer(struct cli *cli, const struct api_request *r)
{
    const struct cli_question *q = cli->verb->question;
    struct bytes body = buf_bytes(&r->answer.body);
    json_t *answer = json_loadb((const char *)body.data, body.len, 0, NULL);
    int code = 0;
    if (answer == NULL)
        code = cli_no_memory(cli);
    else if (q->columns != NULL)
        code = cli_print_list(cli, q->columns, json_object_get(answer, r->op->answers));
    else if (q->lines == NULL)
        cli_say("%s", r->answer.said);
    else if (cli_gave(cli, "json"))
        code = cli_print_json(cli, json_incref(answer), JSON_INDENT(2));
    else {
        json_object_set_new(answer, "said", json_string(r->answer.said));
        sheet_print_lines(q->lines, answer, cli->now_ms);
    }
    json_decref(answer);
    return code;
}

int cli_question_run(struct cli *cli, void *order)
{
    const struct cli_asked *o = order;
    struct api_context context = {
        .pg = cli->pg, .rules = config_accept_rules(&cli->config), .now_ms = cli->now_ms};
    struct asked a;
    struct err e = {0};
    int rc = read_request(cli, o->fields, &a, &e);
    if (rc == 0 && a.request.op->effect != API_READS)
        cli_changed(cli, 1);
    if (rc == 0)
        rc = api_run(&context, &a.request, &e);
    if (rc == 0 && a.request.answer.status >= 400)
        rc = fail(&a.request.answer, &e);
    int code = rc == 0 ? print_answer(cli, &a.request) : cli_fail(cli, &e);
    close_asked(&a);
    return code;
}

void cli_question_close(void *order)
{
    struct cli_asked *o = order;
    json_decref(o->fields);
}
