#include "gateway/api/recur/recur_request.h"

#include "sql/pipeline/store.h"

#include <string.h>

#define ANSWER_MAX ((size_t)512 * 1024 * 1024)
#define VERSIONS_MAX 2048

/* The tags of an If-Match, between commas: '"1-a", "2-b"', also without quotes; '*' alone. Weak ones match
 * nothing, so they are left out. False: answered. */
static bool read_versions(struct api_request *r, struct buf *out)
{
    struct bytes rest = r->if_match;
    char shown[80];
    while (rest.len > 0) {
        const uint8_t *comma = memchr(rest.data, ',', rest.len);
        struct bytes one = bytes_of(rest.data, comma != NULL ? (size_t)(comma - rest.data) : rest.len);
        rest = bytes_of(rest.data + one.len, rest.len - one.len);
        if (rest.len > 0)
            rest = bytes_of(rest.data + 1, rest.len - 1);
        while (one.len > 0 && (one.data[0] == ' ' || one.data[0] == '\t'))
            one = bytes_of(one.data + 1, one.len - 1);
        while (one.len > 0 && (one.data[one.len - 1] == ' ' || one.data[one.len - 1] == '\t'))
            one.len--;
        if (bytes_start_with_str(one, "W/"))
            continue;
        if (one.len >= 2 && one.data[0] == '"' && one.data[one.len - 1] == '"')
            one = bytes_of(one.data + 1, one.len - 2);
        if (one.len > 0 && out->len > 0)
            buf_put_str(out, ",");
        buf_put_bytes(out, one);
    }
    if (!out->failed && bytes_is_text(buf_bytes(out)))
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "if-match: \"%s\" is no list of tags, such as \"12-64dc0\"",
             bytes_printable(r->if_match, shown, sizeof shown));
    return false;
}

static bool read_condition(struct api_request *r, struct recur_request *q, struct buf *versions)
{
    q->fresh = r->if_none_match.data != NULL;
    if (q->fresh && !bytes_equal_str(r->if_none_match, "*")) {
        api_fail(&r->answer, API_INVALID_REQUEST, "if-none-match: allowed is *");
        return false;
    }
    if (r->if_match.data == NULL)
        return true;
    if (!read_versions(r, versions))
        return false;
    q->versions = buf_bytes(versions);
    if (q->versions.data == NULL)
        q->versions = bytes_of_str("");
    return true;
}

int recur_request_ask(struct api_context *c, struct api_request *r, struct recur_request *q, struct arena *a,
                      struct recur_answer *out, struct err *e)
{
    char shown[80];
    q->scope = api_operate_scope(r);
    q->via = r->scope != NULL ? r->scope->principal : "a gateway";
    if (r->id.len > 0)
        q->name = r->id;
    if (!bytes_is_text(q->name)) {
        api_fail(&r->answer, API_NOT_FOUND, "there is no schedule \"%s\"",
                 bytes_printable(q->name, shown, sizeof shown));
        return 0;
    }
    if (recur_operate(c->pg, q, a, out, e) == 0)
        return 1;
    if (e->kind == ERR_NOT_FOUND)
        api_fail(&r->answer, API_NOT_FOUND, "%s", e->text);
    else if (e->kind == ERR_REJECT)
        api_fail(&r->answer, q->operation == RECUR_PREVIEW ? API_INVALID_REQUEST : API_INVALID_MESSAGE, "%s",
                 e->text);
    else
        return -1;
    return 0;
}

static void print_answer(struct api_request *r, const struct recur_answer *answer, const char *field)
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

static void make_answer(struct api_request *r, const struct recur_request *q,
                        const struct recur_answer *answer)
{
    char shown[80];
    bytes_printable(r->id, shown, sizeof shown);
    switch (answer->outcome) {
    case RECUR_DONE:
    case RECUR_MADE:
        print_answer(r, answer,
                     q->operation == RECUR_RUN      ? "id"
                     : q->operation == RECUR_REMOVE ? "removed"
                                                    : "");
        break;
    case RECUR_UNMET:
        api_fail(&r->answer, API_PRECONDITION_FAILED,
                 q->fresh ? "there is a schedule \"%s\" already"
                          : "schedule \"%s\" is not as it was: show it, and decide anew",
                 shown);
        break;
    case RECUR_EXCHANGE:
        api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
                 "schedule \"%s\" is of, or is to be for, an exchange that the token does not list", shown);
    }
}

/* Done twice, it may say something else the second time. */
static bool is_repeatable(const struct api_request *r, const struct recur_request *q)
{
    if (q->fresh || q->versions.data != NULL)
        return false;
    return q->operation != RECUR_REMOVE && (q->operation != RECUR_RUN || r->idempotency_key.len > 0);
}

int recur_request_change(struct api_context *c, struct api_request *r, struct recur_request *q, struct err *e)
{
    struct recur_answer answer;
    struct arena arena;
    struct buf versions;
    int64_t clock_us;
    int rc = 0;
    buf_init(&versions, VERSIONS_MAX);
    if (read_condition(r, q, &versions)) {
        arena_init(&arena, ANSWER_MAX);
        /* A connection that died while idle is noticed here, where trying again is safe. */
        rc = store_clock(c->pg, &clock_us, e);
        if (rc == 0) {
            rc = recur_request_ask(c, r, q, &arena, &answer, e);
            c->wrote = rc < 0 && e->kind == ERR_AWAY && !is_repeatable(r, q);
        }
        if (rc > 0)
            make_answer(r, q, &answer);
        arena_free(&arena);
    }
    buf_free(&versions);
    return rc < 0 ? -1 : 0;
}

int recur_request_read(struct api_context *c, struct api_request *r, struct recur_request *q,
                       const char *field, struct err *e)
{
    struct recur_answer answer;
    struct arena arena;
    arena_init(&arena, ANSWER_MAX);
    int rc = recur_request_ask(c, r, q, &arena, &answer, e);
    if (rc > 0)
        print_answer(r, &answer, field);
    arena_free(&arena);
    return rc < 0 ? -1 : 0;
}
