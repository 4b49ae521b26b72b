#include "core/base/clock.h"
#include "gateway/cli/schedule/schedule.h"

#include "core/base/bytes.h"
#include "sql/admin/settings.h"
#include <stdio.h>
#include <stdlib.h>

#define PATIENCE 6 /* waits of 0.1 s, 0.2 s … 3.2 s */

static int store_patiently(struct cli *cli, struct store_item *items, size_t count, struct err *e)
{
    const struct store_options options = {.key_memory_ms = cli->config.keys.key_memory_ms};
    int result = -1;
    for (int i = 0; i <= PATIENCE; i++) {
        result = store_accept(cli->pg, &options, items, count, e);
        if (result == 0 || e->kind != ERR_BUSY || pg_is_broken(cli->pg))
            break;
        if (i < PATIENCE)
            clock_nap_ms(100L << i);
    }
    return result;
}

/* Somebody's open transaction holds the key: their commit or rollback decides, and mostly comes soon. */
static int store_waiting(struct cli *cli, struct store_item *items, size_t count, struct err *e)
{
    int patience = PATIENCE; /* for all of them together */
    for (size_t i = 0; i < count; i++) {
        while (items[i].result == STORE_WAITS && patience > 0) {
            clock_nap_ms(100L << (PATIENCE - patience--));
            if (store_patiently(cli, &items[i], 1, e) != 0)
                return -1;
        }
    }
    return 0;
}

int schedule_store(struct cli *cli, struct store_item *items, size_t count, struct err *e)
{
    if (store_patiently(cli, items, count, e) != 0)
        return -1;
    return store_waiting(cli, items, count, e);
}

int schedule_rules(struct cli *cli, struct accept_rules *out)
{
    struct err e;
    *out = config_accept_rules(&cli->config);
    return settings_hold_policy(cli->pg, &out->hold, &e) == 0 ? 0 : cli_fail(&e);
}

const char *schedule_refusal(const struct store_item *item, char *out, size_t size)
{
    char key[300], id[MESSAGE_ID_TEXT_SIZE];
    bytes_printable(item->message.key, key, sizeof key);
    if (item->day_locked)
        snprintf(out, size,
                 "somebody has locked the table of the day on which it is due: try again later (postdate "
                 "doctor says who)");
    else if (item->result == STORE_WAITS)
        snprintf(out, size, "key \"%s\" is held by somebody's open transaction: try again when it has ended",
                 key);
    else if (item->message.on_conflict == ON_CONFLICT_REPLACE)
        snprintf(out, size,
                 "key \"%s\" names message %s, which can't be replaced any more (it is being delivered)", key,
                 message_id_format(item->existing_id, id));
    else
        snprintf(out, size, "key \"%s\" already names message %s", key,
                 message_id_format(item->existing_id, id));
    return out;
}
