/* What `postdate recur` prints for people; the objects are the answers of sql/operate/recur.h. */
#ifndef POSTDATE_GATEWAY_CLI_RECUR_RECUR_PRINT_H
#define POSTDATE_GATEWAY_CLI_RECUR_RECUR_PRINT_H

#include "gateway/cli/cli.h"
#include <jansson.h>

void recur_print_heading(void);
/* One line of the list. */
void recur_print_row(const json_t *schedule, int64_t now_ms);
/* All of one schedule; "next_local": its next time in its own zone. */
void recur_print_all(const json_t *schedule, int64_t now_ms);
/* A line for each field in which two definitions differ. */
void recur_print_difference(const json_t *old, const json_t *new);
/* Who changed what, an array. */
void recur_print_history(const json_t *changes, int64_t now_ms);
/* The next times, an array. */
void recur_print_times(const json_t *times);

#endif
