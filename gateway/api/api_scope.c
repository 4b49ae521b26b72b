/* What a caller with a token may name. The delivery exchange is the unit: CC and BCC add routing keys of the
 * same exchange, and headers x-postdate-* are refused in JSON, so that a message can't name a second one. */
#include "core/base/share.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/api/api_internal.h"

#include <stdio.h>

bool api_scope_is_all(const struct api_scope *s)
{
    return s == NULL || s->exchanges.all;
}

bool api_scope_has(const struct api_scope *s, struct bytes exchange)
{
    if (api_scope_is_all(s))
        return true;
    for (size_t i = 0; i < s->exchanges.count; i++)
        if (bytes_equal(exchange, s->exchanges.exchanges[i]))
            return true;
    return false;
}

static bool has_header(const struct message *m, const char *name)
{
    struct wire_properties p;
    struct wire_field field;
    struct err ignored;
    return m->properties.len > 0 && wire_properties_read(m->properties, &p, &ignored) == 0 &&
           (p.flags & WIRE_HEADERS) != 0 && wire_find(p.headers, name, &field);
}

int api_scope_admits(const struct api_scope *s, const struct accept_rules *rules, const struct message *m,
                     char *text, size_t size)
{
    char shown[80];
    if (s == NULL)
        return 0;
    if (!api_scope_has(s, m->exchange))
        snprintf(text, size, "exchange: \"%s\" is not among those that the token lists",
                 bytes_printable(m->exchange, shown, sizeof shown));
    else if (m->exchange.len == 0 && reserved_queue(m->routing_key, rules->intake_queue))
        snprintf(text, size, "routing_key: with a token, the gateway's own queue \"%s\" is out of reach",
                 bytes_printable(m->routing_key, shown, sizeof shown));
    else if (m->exchange.len == 0 && (has_header(m, "CC") || has_header(m, "BCC")))
        snprintf(text, size, "headers: with a token, CC and BCC are not for the default exchange");
    else
        return 0;
    return -1;
}

const char *api_principal(const struct api_request *r)
{
    return r->scope != NULL ? r->scope->principal : "";
}

uint64_t api_caller(const struct api_request *r)
{
    return r->scope != NULL ? share_caller(r->scope->principal)
                            : share_address(r->from != NULL ? r->from : "");
}

const struct operate_scope *api_operate_scope(const struct api_request *r)
{
    return r->scope != NULL ? &r->scope->exchanges : NULL;
}
