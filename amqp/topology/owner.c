#include "amqp/topology/owner.h"

#include "core/base/names.h"

#include <stdio.h>
#include <string.h>

#define CURRENT "but current is '"

/* Only to be shown: "… received 'postdate.<ours>' but current is 'postdate.<theirs>'", which may be cut. */
static void read_other(const char *text, char out[OWNER_ID_SIZE])
{
    const char *at = strstr(text, CURRENT);
    size_t own = strlen(broker_names.own);
    out[0] = '\0';
    if (at == NULL || strncmp(at + strlen(CURRENT), broker_names.own, own) != 0)
        return;
    at += strlen(CURRENT) + own;
    size_t len = strcspn(at, "'");
    if (len < OWNER_ID_SIZE && at[len] == '\'')
        snprintf(out, OWNER_ID_SIZE, "%.*s", (int)len, at);
}

/* The same again changes nothing; another one is refused. */
static int declare_owner(struct broker *b, const char *identity, struct owner *out, struct err *e)
{
    char name[NAMES_SIZE + OWNER_ID_SIZE]; /* with the prefix, so that the gateway's rights cover it */
    const struct broker_exchange exchange = {.name = broker_names.owner,
                                             .type = "fanout",
                                             .args = BROKER_ARGS(BROKER_TEXT("alternate-exchange", name))};
    struct err why = {0};
    snprintf(name, sizeof(name), "%s%s", broker_names.own, identity);
    if (broker_declare_exchange_as(b, &exchange, &why) == 0) {
        out->verdict = OWNER_OURS;
        return 0;
    }
    if (err_is_transient(&why))
        return err_set(e, why.kind, "%s", why.text);
    if (broker_recover(b, e) != 0)
        return -1;
    out->verdict = why.kind == ERR_CONFIG ? OWNER_OTHER : OWNER_UNKNOWN; /* 406: it is there, and differs */
    read_other(why.text, out->other);
    snprintf(out->why, sizeof(out->why), "%.299s", why.text);
    return 0;
}

/* From 4.3 on RabbitMQ asks for the right to look, too. */
static int may_not_look(struct broker *b, struct owner *out, struct err *e)
{
    out->verdict = OWNER_UNKNOWN;
    snprintf(out->why, sizeof(out->why), "%.299s", e->text);
    err_clear(e);
    return broker_recover(b, e) != 0 ? -1 : 1;
}

/* 1: there is one, which is ours or not, or may not be looked at; 0: none. */
static int find_owner(struct broker *b, const char *identity, struct owner *out, struct err *e)
{
    *out = (struct owner){.verdict = OWNER_NOBODY};
    int there = broker_has_exchange(b, broker_names.owner, e);
    if (there < 0)
        return e->kind == ERR_PERMISSION ? may_not_look(b, out, e) : -1;
    if (!there)
        return 0;
    return declare_owner(b, identity, out, e) ? -1 : 1;
}

int owner_look(struct broker *b, const char *identity, struct owner *out, struct err *e)
{
    return find_owner(b, identity, out, e) < 0 ? -1 : 0;
}

int owner_claim(struct broker *b, const char *identity, struct owner *out, struct err *e)
{
    *out = (struct owner){.verdict = OWNER_NOBODY};
    return declare_owner(b, identity, out, e);
}

int owner_take_over(struct broker *b, const char *identity, struct owner *out, struct err *e)
{
    int found = find_owner(b, identity, out, e);
    if (found < 0 || (found && out->verdict != OWNER_OTHER))
        return found < 0 ? -1 : 0;
    if (found && broker_delete_exchange(b, broker_names.owner, false, e))
        return -1;
    return owner_claim(b, identity, out, e);
}
