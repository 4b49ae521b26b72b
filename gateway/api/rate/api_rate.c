/* Rates. They hold back whoever publishes to an exchange: so who changes one needs a token for all exchanges.
 * Others see those that count for their exchanges. */
#include "gateway/api/api_internal.h"
#include "gateway/json/json_rate.h"
#include "sql/operate/rate.h"

#define RATES_MAX ((size_t)16 * 1024 * 1024)
#define DEFAULT_EXCHANGE "amq.default" /* what RabbitMQ calls it where a name is needed; no other has it */

/* False: answered. */
static bool may_change(struct api_request *r)
{
    if (api_scope_is_all(r->scope))
        return true;
    api_fail(&r->answer, API_EXCHANGE_NOT_ALLOWED,
             "rates hold back whoever publishes: changing them needs a token for all exchanges (`postdate "
             "token create --exchange '*'`)");
    return false;
}

static bool may_see(const struct api_request *r, struct bytes exchange)
{
    bool found = api_scope_is_all(r->scope);
    for (size_t i = 0; !found && i < r->scope->exchanges.count; i++)
        found = glob_matches(exchange, r->scope->exchanges.exchanges[i]);
    return found;
}

/* Of one that is for several exchanges, some of the messages that wait may be of exchanges that do not exist
 * for this token. */
static json_t *rate_value(const struct api_request *r, const struct rate *rate)
{
    json_t *o = json_rate_value(rate);
    if (!api_scope_is_all(r->scope) && !api_scope_has(r->scope, rate->exchange)) {
        json_object_set_new(o, "waiting", json_null());
        json_object_set_new(o, "drained_at", json_null());
    }
    return o;
}

/* rc: of reading it. */
static int answer_rate(struct api_request *r, int rc, const struct rate *rate, const struct err *e)
{
    if (rc != 0)
        return api_answer_err(r, e);
    struct json_memory_scope outer = json_memory_begin();
    api_answer_json(r, rate_value(r, rate), outer);
    return 0;
}

static struct bytes exchange_named(struct bytes name)
{
    return bytes_equal_str(name, DEFAULT_EXCHANGE) ? bytes_of_str("") : name;
}

/* Which rate it is; the data of its routing key is NULL where the parameters name none. False: answered. */
static bool take_names(struct api_request *r, struct rate *out)
{
    *out = (struct rate){.exchange = exchange_named(r->id)};
    if (api_params_check(r, (const char *const[]){"routing_key", NULL}) != 0 ||
        api_param_name(r, "routing_key", &out->routing_key, &r->answer) != 0)
        return false;
    if (bytes_is_text(out->exchange))
        return true;
    api_fail(&r->answer, API_INVALID_REQUEST, "the exchange is not UTF-8 text");
    return false;
}

static bool take_names_only(struct api_request *r, struct rate *out)
{
    if (!take_names(r, out))
        return false;
    if (out->routing_key.data == NULL)
        out->routing_key = bytes_of_str(RATE_ANY_KEY);
    return true;
}

/* As it is now. */
static int answer_now(struct api_context *c, struct api_request *r, const struct rate *names, struct err *e)
{
    struct rate rate = {0};
    struct arena arena;
    arena_init(&arena, RATES_MAX);
    int rc = may_see(r, names->exchange)
                 ? rate_get(c->pg, names->exchange, names->routing_key, &arena, &rate, e)
                 : rate_fail_missing(names->exchange, names->routing_key, e);
    rc = answer_rate(r, rc, &rate, e);
    arena_free(&arena);
    return rc;
}

int api_rate_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate *list;
    size_t count = 0;
    struct arena arena;
    if (!api_takes_nothing(r))
        return 0;
    arena_init(&arena, RATES_MAX);
    int rc = rate_list(c->pg, &arena, &list, &count, e);
    if (rc == 0) {
        struct json_memory_scope outer = json_memory_begin();
        json_t *rates = json_array();
        for (size_t i = 0; i < count; i++)
            if (may_see(r, list[i].exchange))
                json_array_append_new(rates, rate_value(r, &list[i]));
        api_answer_json(r, json_pack("{s:o}", "rates", rates), outer);
    }
    arena_free(&arena);
    return rc;
}

int api_rate_match(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes exchange, key;
    struct rate rate = {0};
    struct arena arena;
    if (api_params_check(r, (const char *const[]){"exchange", "routing_key", NULL}) != 0 ||
        api_param_name(r, "exchange", &exchange, &r->answer) != 0 ||
        api_param_name(r, "routing_key", &key, &r->answer) != 0)
        return 0;
    if (exchange.data == NULL) {
        api_fail(&r->answer, API_INVALID_REQUEST, "exchange: name an exchange (up to %d bytes)",
                 MESSAGE_NAME_MAX);
        return 0;
    }
    exchange = exchange_named(exchange);
    if (key.data == NULL)
        key = bytes_of_str(RATE_ANY_KEY);
    arena_init(&arena, RATES_MAX);
    int rc = api_scope_has(r->scope, exchange) ? rate_match(c->pg, exchange, key, &arena, &rate, e)
                                               : rate_fail_unmatched(exchange, key, e);
    rc = answer_rate(r, rc, &rate, e);
    arena_free(&arena);
    return rc;
}

int api_rate_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate names;
    return take_names_only(r, &names) ? answer_now(c, r, &names, e) : 0;
}

int api_rate_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate rate;
    if (!take_names(r, &rate) || !may_change(r))
        return 0;
    json_t *root = api_parse_body(r->body, &r->answer);
    if (root == NULL)
        return 0;
    int rc = json_rate_read(root, &rate, e);
    if (rc == 0)
        rc = rate_set(c->pg, &rate, e);
    rc = rc == 0 ? answer_now(c, r, &rate, e) : api_answer_err(r, e);
    json_decref(root);
    return rc;
}

/* Pauses or resumes. */
static int change(struct api_context *c, struct api_request *r,
                  int (*run)(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e),
                  struct err *e)
{
    struct rate names;
    if (!take_names(r, &names) || !may_change(r))
        return 0;
    json_t *root = api_parse_body(r->body, &r->answer);
    if (root == NULL)
        return 0;
    int rc = json_rate_read_name(root, &names, e);
    if (rc == 0)
        rc = run(c->pg, names.exchange, names.routing_key, e);
    rc = rc == 0 ? answer_now(c, r, &names, e) : api_answer_err(r, e);
    json_decref(root);
    return rc;
}

int api_rate_pause(struct api_context *c, struct api_request *r, struct err *e)
{
    return change(c, r, rate_pause, e);
}

int api_rate_resume(struct api_context *c, struct api_request *r, struct err *e)
{
    return change(c, r, rate_resume, e);
}

int api_rate_remove(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate names;
    if (!take_names_only(r, &names) || !may_change(r))
        return 0;
    if (rate_remove(c->pg, names.exchange, names.routing_key, e) != 0)
        return api_answer_err(r, e);
    api_answer_removed(r);
    return 0;
}
