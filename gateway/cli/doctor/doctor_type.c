/* Exchanges of the type x-delayed-message: whose that type is on each node, Postdate's (exchange-type/) or
 * the archived plugin's, and what Postdate's would refuse. */
#include "core/base/names.h"
#include "gateway/cli/doctor/doctor_admin.h"
#include "gateway/cli/text.h"

#include <stdio.h>
#include <string.h>

#define CHECK "exchange.type"
#define OURS "postdate_exchange"
#define PLUGIN "rabbitmq_delayed_message_exchange"
#define NAMED 5

/* "a", "b", … of an array of texts, for a line. */
static const char *list(const json_t *names, char *out, size_t size)
{
    size_t n = json_array_size(names), used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && i < NAMED && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s'%.80s'", i > 0 ? ", " : "",
                                 json_string_value(json_array_get(names, i)));
    if (n > NAMED && used < size)
        snprintf(out + used, size - used, " and %zu more", n - NAMED);
    return out;
}

static bool is_on(const json_t *node, const char *plugin)
{
    const json_t *enabled = json_object_get(node, "enabled");
    for (size_t i = 0; i < json_array_size(enabled); i++)
        if (strcmp(json_string_value(json_array_get(enabled, i)), plugin) == 0)
            return true;
    return false;
}

static bool is_gateways(const json_t *x)
{
    return json_is_true(json_object_get(x, "owned")) ||
           bytes_start_with_str(bytes_of_str(text_of(x, "name")), broker_names.own);
}

/* A node that lacks the type, or has it from another plugin than the others. Findings. */
static int report_nodes(struct doctor *d, const json_t *types, bool needed)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *node = json_array_get(types, i);
        const char *name = text_of(node, "node"), *module = text_of(node, "module");
        if (is_on(node, OURS) && is_on(node, PLUGIN)) {
            doctor_fail(d, CHECK,
                        "%s: both " OURS " and " PLUGIN
                        " are enabled; the type x-delayed-message is that of %s now, and "
                        "the plugin's from the next boot on" REMEDY
                        "rabbitmq-plugins disable the one that is not to be, then enable the other one again",
                        name, strcmp(module, OURS) == 0 ? "Postdate" : "the plugin");
            count++;
        } else if (needed && strcmp(module, "none") == 0) {
            doctor_fail(d, CHECK,
                        "%s does not know the type x-delayed-message: who is connected there cannot publish "
                        "to its exchanges, and queues there that dead-letter to one crash and lose the "
                        "message" REMEDY "rabbitmq-plugins enable " OURS " on each node: docs/migrate.md",
                        name);
            count++;
        }
    }
    return count;
}

/* Of an exchange, what Postdate's type refuses or cannot do. Findings. */
static int report_exchange(struct doctor *d, const json_t *x, bool ours)
{
    char names[600];
    const char *name = text_of(x, "name"), *vhost = text_of(x, "vhost");
    int count = 0;
    if (json_array_size(json_object_get(x, "unknown")) > 0 && ++count)
        doctor_fail(d, CHECK,
                    "exchange '%s' in vhost '%s': its x-delayed-type '%s' is not known on %s" REMEDY
                    "enable the plugin that has this type on each node",
                    name, vhost, text_of(x, "inner"),
                    list(json_object_get(x, "unknown"), names, sizeof names));
    if (json_array_size(json_object_get(x, "from")) > 0 && ++count)
        doctor_warn(
            d, CHECK,
            "exchange '%s' in vhost '%s': %s lead there, by a binding or as their alternate exchange; "
            "Postdate's type refuses what is published to those with x-delay" REMEDY
            "publish what is to wait to '%s' itself",
            name, vhost, list(json_object_get(x, "from"), names, sizeof names), name);
    if (ours && !json_is_true(json_object_get(x, "served")) && ++count)
        doctor_warn(d, CHECK,
                    "exchange '%s': no gateway has served vhost '%s', so what has x-delay is refused" REMEDY
                    "start a gateway of Postdate for that vhost",
                    name, vhost);
    if (!json_is_true(json_object_get(x, "writes")) && ++count)
        doctor_warn(d, CHECK,
                    "exchange '%s': '%s' may not write to it, so what waited cannot be delivered" REMEDY
                    "rabbitmqctl set_permissions, with '%s' in the second pattern",
                    name, d->target.user, name);
    return count;
}

static void report_fine(struct doctor *d, size_t exchanges, const json_t *deaths)
{
    char names[600] = "";
    if (json_array_size(deaths) > 0)
        list(deaths, names, sizeof names);
    doctor_ok(d, CHECK, "Postdate's, on each node; %zu exchange%s%s%s", exchanges, exchanges == 1 ? "" : "s",
              names[0] != '\0' ? "; queues dead-letter to them: " : "", names);
}

void doctor_type_report(struct doctor *d, const json_t *answer)
{
    const json_t *types = json_object_get(answer, "types"), *delayed = json_object_get(answer, "delayed");
    json_t *deaths = json_array();
    size_t exchanges = 0;
    int count = 0;
    bool ours = false, any = false;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *node = json_array_get(types, i);
        ours |= is_on(node, OURS) || strcmp(text_of(node, "module"), OURS) == 0;
        any |= strcmp(text_of(node, "module"), "none") != 0;
    }
    for (size_t i = 0; i < json_array_size(delayed); i++) {
        const json_t *x = json_array_get(delayed, i);
        if (is_gateways(x))
            continue;
        exchanges++;
        count += report_exchange(d, x, ours);
        json_array_extend(deaths, json_object_get(x, "deaths"));
    }
    count += report_nodes(d, types, exchanges > 0 || (ours && any));
    if (ours && count == 0)
        report_fine(d, exchanges, deaths);
    json_decref(deaths);
}
