/* What AMQP cannot show, asked of the broker's administration, where this user may: what waits in the plugin,
 * bindings, policies, the broker's clock. */
#include "gateway/cli/doctor/doctor_admin.h"

#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/names.h"
#include "doctor_embedded.h"
#include "gateway/cli/rabbitmqctl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MS 20000
#define OUT_MAX ((size_t)4 * 1024 * 1024)
#define NAMES_MAX ((size_t)64 * 1024)

/* The intake exchanges, a zero behind each but the last one. */
static void set_exchanges(struct rabbitmqctl *r, const struct config *c)
{
    struct buf b;
    buf_init(&b, NAMES_MAX);
    buf_put_str(&b, c->intake.exchange);
    for (size_t i = 0; i < c->route_count; i++) {
        buf_put_u8(&b, '\0');
        buf_put_str(&b, c->routes[i].intake_exchange);
    }
    rabbitmqctl_set_bytes(r, "Intake_exchanges", buf_bytes(&b));
    r->values.failed |= b.failed;
    buf_free(&b);
}

/* They have the same names in doctor.erl. */
static void set_variables(struct rabbitmqctl *r, const struct doctor *d)
{
    struct buf pattern;
    buf_init(&pattern, 1024);
    names_put_pattern(&pattern);
    rabbitmqctl_set_bytes(r, "V", bytes_of_str(d->target.vhost));
    rabbitmqctl_set_bytes(r, "U", bytes_of_str(d->target.user));
    rabbitmqctl_set_bytes(r, "I", bytes_of_str(d->config->intake.queue));
    rabbitmqctl_set_bytes(r, "D", bytes_of_str(d->config->delivery.exchange));
    rabbitmqctl_set_bytes(r, "Pattern", buf_bytes(&pattern));
    rabbitmqctl_set_bytes(r, "Retry", bytes_of_str(broker_names.retry));
    set_exchanges(r, d->config);
    buf_free(&pattern);
}

/* JSON as base64, on a line. NULL: that is not what came. */
static json_t *decode_answer(struct arena *a, const struct buf *out)
{
    struct bytes text;
    const uint8_t *end = out->len > 0 ? memchr(out->data, '\n', out->len) : NULL;
    if (end == NULL || !base64_decode(bytes_of(out->data, (size_t)(end - out->data)), a, &text))
        return NULL;
    return json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
}

static void skip_blanks(struct doctor *d, const char *why)
{
    bool told = d->rabbitmqctl == NULL && doctor_management_report(d);
    /* Asked for, it has to work. */
    doctor_report(
        d, d->rabbitmqctl != NULL ? FINDING_FAIL : FINDING_SKIP, "rabbitmqctl",
        "%s; so not checked: messages in the delayed-message plugin, bindings, %sthe broker's clock" REMEDY
        "run `postdate doctor` as root, or as the user rabbitmq, on a node of the broker; if its "
        "rabbitmqctl is elsewhere, with --rabbitmqctl PATH",
        why, told ? "rights, " : "policies, ");
}

static void report_answer(struct doctor *d, const char *path, const json_t *answer, int64_t from_ms)
{
    char why[400];
    const json_t *clusters = json_object_get(answer, "clusters");
    const char *first = json_string_value(json_array_get(clusters, 0));
    if (first == NULL) {
        snprintf(why, sizeof why, "%.100s gave an answer that is not understood", path);
        skip_blanks(d, why);
    } else if (!doctor_has_name(clusters, broker_cluster_name(d->broker))) {
        snprintf(why, sizeof why, "%.100s speaks to another broker, cluster '%.200s'", path, first);
        skip_blanks(d, why);
    } else {
        doctor_ok(d, "rabbitmqctl", "%s answers", path);
        doctor_admin_report(d, answer, from_ms, clock_wall_ms());
    }
}

void doctor_check_rabbitmqctl(struct doctor *d)
{
    struct rabbitmqctl r;
    struct buf out;
    struct err e;
    int64_t from_ms = clock_wall_ms();
    buf_init(&out, OUT_MAX);
    rabbitmqctl_init(&r);
    r.path = d->rabbitmqctl;
    r.timeout_ms = RUN_MS;
    set_variables(&r, d);
    if (rabbitmqctl_eval(&r, doctor_erl, &out, &e) == 0) {
        json_t *answer = decode_answer(&d->cli->arena, &out);
        report_answer(d, r.path, answer, from_ms);
        json_decref(answer);
    } else {
        skip_blanks(d, e.text);
    }
    rabbitmqctl_free(&r);
    buf_free(&out);
}
