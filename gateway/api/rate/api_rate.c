/* Rates. They hold back whoever publishes to an exchange: so who changes one needs a token for all exchanges.
 * Others see those that count for their exchanges. */
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "gateway/json/json_rate.h"
#include "sql/operate/rate.h"

#define DEFAULT_EXCHANGE "amq.default" /* what RabbitMQ calls it where a name is needed; no other has it */

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

static struct bytes exchange_named(struct bytes name)
{
    return bytes_equal_str(name, DEFAULT_EXCHANGE) ? bytes_of_str("") : name;
}

/* Which rate it is; the data of its routing key is NULL where neither the parameters nor, yet, the body name
 * one. */
static int take_names(const struct api_context *c, const struct api_request *r, struct rate *out,
                      struct err *e)
{
    *out = (struct rate){.exchange = exchange_named(r->id)};
    if (api_param_name(&r->params, "routing_key", &out->routing_key, e) != 0)
        return -1;
    if (out->routing_key.data == NULL && c->body == NULL)
        out->routing_key = bytes_of_str(RATE_ANY_KEY);
    return bytes_is_text(out->exchange)
               ? 0
               : err_set(e, ERR_REJECT, "the exchange is not UTF-8 text without NUL");
}

/* As it is now. */
static int answer_now(struct api_context *c, struct api_request *r, const struct rate *names, struct err *e)
{
    struct rate rate;
    if (!may_see(r, names->exchange))
        return rate_fail_missing(names->exchange, names->routing_key, e);
    if (rate_get(c->pg, names->exchange, names->routing_key, &c->arena, &rate, e) != 0)
        return -1;
    c->value = rate_value(r, &rate);
    return 0;
}

int api_rate_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate *list;
    size_t count = 0;
    if (rate_list(c->pg, &c->arena, &list, &count, e) != 0)
        return -1;
    json_t *rates = json_array();
    for (size_t i = 0; i < count; i++)
        if (may_see(r, list[i].exchange))
            json_array_append_new(rates, rate_value(r, &list[i]));
    c->value = json_pack("{s:o}", "rates", rates);
    return 0;
}

int api_rate_match(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bytes exchange, key;
    struct rate rate;
    if (api_param_name(&r->params, "exchange", &exchange, e) != 0 ||
        api_param_name(&r->params, "routing_key", &key, e) != 0)
        return -1;
    if (exchange.data == NULL)
        return err_set(e, ERR_REJECT, "exchange: name an exchange (up to %d bytes)", MESSAGE_NAME_MAX);
    exchange = exchange_named(exchange);
    if (key.data == NULL)
        key = bytes_of_str(RATE_ANY_KEY);
    if (!api_scope_has(r->scope, exchange))
        return rate_fail_unmatched(exchange, key, e);
    if (rate_match(c->pg, exchange, key, &c->arena, &rate, e) != 0)
        return -1;
    c->value = rate_value(r, &rate);
    return 0;
}

int api_rate_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate names;
    return take_names(c, r, &names, e) == 0 ? answer_now(c, r, &names, e) : -1;
}

int api_rate_set(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate rate;
    if (take_names(c, r, &rate, e) != 0 || json_rate_read(c->body, &rate, e) != 0 ||
        rate_set(c->pg, &rate, e) != 0)
        return -1;
    c->wake = true;
    return answer_now(c, r, &rate, e);
}

/* Or resumes it. */
int api_rate_pause(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate names;
    if (take_names(c, r, &names, e) != 0 || json_rate_read_name(c->body, &names, e) != 0 ||
        (r->op->kind ? rate_pause : rate_resume)(c->pg, names.exchange, names.routing_key, e) != 0)
        return -1;
    c->wake = true;
    return answer_now(c, r, &names, e);
}

int api_rate_remove(struct api_context *c, struct api_request *r, struct err *e)
{
    struct rate names;
    if (take_names(c, r, &names, e) != 0 || rate_remove(c->pg, names.exchange, names.routing_key, e) != 0)
        return -1;
    c->wake = true;
    c->value = json_pack("{s:b}", "removed", 1);
    return 0;
}
