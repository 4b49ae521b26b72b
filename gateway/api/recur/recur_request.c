#include "gateway/api/recur/recur_request.h"

#include "gateway/api/api_operation.h"

#include <string.h>

static struct bytes trim(struct bytes b)
{
    while (b.len > 0 && (b.data[0] == ' ' || b.data[0] == '\t'))
        b = bytes_of(b.data + 1, b.len - 1);
    while (b.len > 0 && (b.data[b.len - 1] == ' ' || b.data[b.len - 1] == '\t'))
        b.len--;
    return b;
}

/* The tags of an If-Match, between commas: '"1-a", "2-b"', also without quotes; '*' alone. Weak ones match
 * nothing, so they are left out. NULL: out of memory. */
static const char *read_versions(struct api_context *c, struct bytes rest, size_t *len)
{
    char *list = arena_alloc(&c->arena, rest.len + 1);
    *len = 0;
    while (list != NULL && rest.len > 0) {
        const uint8_t *comma = memchr(rest.data, ',', rest.len);
        size_t n = comma != NULL ? (size_t)(comma - rest.data) : rest.len;
        struct bytes one = trim(bytes_of(rest.data, n));
        rest = bytes_of(rest.data + n, rest.len - n);
        if (rest.len > 0)
            rest = bytes_of(rest.data + 1, rest.len - 1);
        if (bytes_start_with_str(one, "W/"))
            continue;
        if (one.len >= 2 && one.data[0] == '"' && one.data[one.len - 1] == '"')
            one = bytes_of(one.data + 1, one.len - 2);
        if (one.len > 0 && *len > 0)
            list[(*len)++] = ',';
        memcpy(list + *len, one.data, one.len);
        *len += one.len;
    }
    return list;
}

/* False: answered. */
static bool read_conditions(struct api_context *c, struct api_request *r, struct recur_request *q)
{
    char shown[80];
    size_t len;
    q->fresh = r->if_none_match.data != NULL;
    if (q->fresh && !bytes_equal_str(r->if_none_match, "*")) {
        api_fail(&r->answer, API_INVALID_REQUEST, "if-none-match: allowed is *");
        return false;
    }
    if (r->if_match.data == NULL)
        return true;
    q->versions.data = (const uint8_t *)read_versions(c, r->if_match, &len);
    q->versions.len = q->versions.data != NULL ? len : 0;
    if (q->versions.data != NULL && bytes_is_text(q->versions))
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "if-match: \"%s\" is no list of tags, such as \"12-64dc0\"",
             bytes_printable(r->if_match, shown, sizeof shown));
    return false;
}

int recur_request_ask(struct api_context *c, const struct api_request *r, struct recur_request *q,
                      struct recur_answer *out, struct err *e)
{
    char shown[80];
    q->operation = (enum recur_operation)r->op->kind;
    q->scope = api_operate_scope(r);
    q->via = r->scope != NULL ? r->scope->principal : "a gateway";
    if (r->id.len > 0)
        q->name = r->id;
    if (!bytes_is_text(q->name))
        return err_set(e, ERR_NOT_FOUND, "there is no schedule \"%s\"",
                       bytes_printable(q->name, shown, sizeof shown));
    return recur_operate(c->pg, q, &c->arena, out, e);
}

void recur_request_print(struct api_request *r, const struct recur_answer *answer, const char *field)
{
    struct buf *out = &r->answer.body;
    buf_reset(out);
    if (*field != '\0')
        buf_printf(out, "{\"%s\":", field);
    buf_put_bytes(out, answer->text);
    buf_put_str(out, *field != '\0' ? "}\n" : "\n");
    r->answer.status = answer->outcome == RECUR_MADE ? 201 : 200;
    snprintf(r->answer.tag, sizeof r->answer.tag, "%.*s", (int)sizeof r->answer.tag - 1, answer->tag);
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "the answer is too large");
}

int recur_request_change(struct api_context *c, struct api_request *r, struct bytes argument, struct err *e)
{
    struct recur_request q = {.argument = argument};
    struct recur_answer answer = {0};
    char shown[80];
    if (!read_conditions(c, r, &q))
        return 0;
    if (recur_request_ask(c, r, &q, &answer, e) != 0)
        return -1;
    c->wake = true;
    bytes_printable(r->id, shown, sizeof shown);
    if (answer.outcome == RECUR_EXISTS)
        api_fail(&r->answer, API_PRECONDITION_FAILED, "there is a schedule \"%s\" already", shown);
    else if (answer.outcome == RECUR_UNMET)
        api_fail(&r->answer, API_PRECONDITION_FAILED,
                 "schedule \"%s\" is not as it was, or is not there: show it, and decide anew", shown);
    else if (answer.outcome == RECUR_EXCHANGE)
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "schedule \"%s\" is of, or is to be for, an exchange that the token does not list", shown);
    else
        recur_request_print(r, &answer,
                            q.operation == RECUR_RUN      ? "id"
                            : q.operation == RECUR_REMOVE ? "removed"
                                                          : "");
    return 0;
}
