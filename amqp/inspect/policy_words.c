/* What a policy does, and what an operator can do about it. */
#include "amqp/inspect/policy_probe.h"

#include "core/base/buf.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include <stdio.h>
#include <string.h>

bool policy_found(const struct policy_finding *f, bool last_hop, bool exit_waits)
{
    return (f->routing_key && last_hop) || (f->overflow && (last_hop || exit_waits)) || f->length ||
           f->expires || f->ttl_ms > 0;
}

static void add_word(char *out, size_t size, const char *text)
{
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", text);
}

const char *policy_describe(const struct policy_finding *f, char *out, size_t size)
{
    char span[40], text[120];
    out[0] = '\0';
    if (f->ttl_ms > 0) {
        snprintf(text, sizeof text, "messages expire after %s (message-ttl)",
                 duration_format_human(f->ttl_ms, span, sizeof span));
        add_word(out, size, text);
    }
    if (f->routing_key)
        add_word(out, size, "messages get another routing key (dead-letter-routing-key)");
    if (f->length)
        add_word(out, size, "queues take only a few messages (max-length, max-length-bytes)");
    if (f->overflow)
        add_word(out, size, "quorum queues drop what they should refuse (overflow)");
    if (f->expires)
        add_word(out, size, "queues are deleted (expires)");
    return out;
}

void policy_put_name(struct buf *out, const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (strchr("\\^$.|?*+()[]{}", *c) != NULL)
            buf_put_u8(out, '\\');
        if (*c == '\'')
            buf_put_str(out, "'\\'");
        buf_put_u8(out, (uint8_t)*c);
    }
}

/* A policy must say something: this repeats what the queues state already. */
const char *policy_remedy(const char *vhost, const char *intake_queue, char *out, size_t size)
{
    struct buf pattern;
    buf_init(&pattern, 1024);
    buf_put_u8(&pattern, '^');
    policy_put_name(&pattern, broker_names.own);
    if (strncmp(intake_queue, broker_names.own, strlen(broker_names.own)) != 0) {
        buf_put_str(&pattern, "|^");
        policy_put_name(&pattern, intake_queue);
    }
    snprintf(
        out, size,
        "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 1000000 %s '%.*s' "
        "'{\"overflow\":\"reject-publish\"}'; an operator policy is not overruled by it and must leave these "
        "names out (rabbitmqctl list_operator_policies -p '%s')",
        vhost, broker_names.prefix, (int)pattern.len, (const char *)pattern.data, vhost);
    buf_free(&pattern);
    return out;
}

const char *policy_cure(const char *vhost, const char *queue, char *out, size_t size)
{
    struct buf pattern;
    buf_init(&pattern, 1024);
    policy_put_name(&pattern, queue);
    /* The queues' own arguments for dead letters count before these. */
    snprintf(out, size,
             "rabbitmqctl set_policy -p '%s' --apply-to queues --priority 1000001 %s-cure '^%.*s' "
             "'{\"delivery-limit\":20,\"dead-letter-exchange\":\"\",\"dead-letter-routing-key\":\"%s\","
             "\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}'",
             vhost, broker_names.prefix, (int)pattern.len, (const char *)pattern.data, broker_names.rejected);
    buf_free(&pattern);
    return out;
}
