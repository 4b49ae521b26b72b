#include "core/base/names.h"
#include "gateway/cli/doctor/doctor.h"

static void report_mistake(void *ctx, enum err_kind kind, const char *text)
{
    struct doctor *d = ctx;
    doctor_fail(d, "config", "%s" REMEDY "%s", text,
                kind == ERR_PERMISSION ? "sudo postdate doctor"
                                       : "correct it; `postdated --print-config-sample` shows every option");
}

static void report_warning(void *ctx, const char *text)
{
    struct doctor *d = ctx;
    doctor_warn(d, "config", "%s" REMEDY "unset them, or correct their names: POSTDATE_<SECTION>_<OPTION>",
                text);
}

static void report_exposed(void *ctx, const char *text)
{
    struct doctor *d = ctx;
    doctor_warn(d, "config", "%s" REMEDY "sudo chown root:postdate FILE; sudo chmod 640 FILE", text);
}

void doctor_check_config(struct doctor *d)
{
    const struct config_report report = {
        .mistake = report_mistake, .warning = report_warning, .exposed = report_exposed, .ctx = d};
    struct cli *cli = d->cli;
    struct err e;
    if (config_load(&cli->config, cli->config_path, &report, &e) != 0)
        return;
    cli->has_config = true;
    names_set_prefix(cli->config.amqp.prefix);
    d->config = &cli->config;
    if (d->config->source != NULL)
        doctor_ok(d, "config", "%s, and the environment", d->config->source);
    else
        doctor_ok(d, "config", "no file: defaults and the environment");
}
