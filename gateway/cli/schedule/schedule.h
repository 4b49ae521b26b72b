/* Between cmd_schedule.c (one message) and schedule_batch.c (NDJSON). */
#ifndef POSTDATE_GATEWAY_CLI_SCHEDULE_SCHEDULE_H
#define POSTDATE_GATEWAY_CLI_SCHEDULE_SCHEDULE_H

#include "gateway/cli/cli.h"
#include "sql/pipeline/store.h"

/* What is due sooner than this was perhaps not expected by a sleeping gateway. */
#define SCHEDULE_WAKE_MS 1500

/* "line 7: key "a" already names message …" and the like; why an item was not stored. */
const char *schedule_refusal(const struct store_item *item, char *out, size_t size);

/* Stores items that are in doubt of nothing: waits out busy servers and held keys for a while. As
 * store_accept. */
int schedule_store(struct cli *cli, struct store_item *items, size_t count, struct err *e);

/* The rules of the configuration, with what the broker may hold as the gateway recorded it. The database is
 * open; errors are printed. 0 or the exit code. */
int schedule_rules(struct cli *cli, struct accept_rules *out);

/* Reads path ("-": stdin); the exit code. */
int schedule_batch(struct cli *cli, const char *path);

#endif
