/* Dead letters for people. */
#ifndef POSTDATE_GATEWAY_CLI_RETRY_DEAD_PRINT_H
#define POSTDATE_GATEWAY_CLI_RETRY_DEAD_PRINT_H

#include "sql/operate/dead.h"

/* A line of a list; first: with the names of the columns above it. */
void dead_print_row(const struct dead_letter_record *r, int64_t now_ms, bool first);
void dead_print_groups(const struct dead_groups *g, int64_t now_ms);
/* All of one, as from dead_show. -1: its properties can't be read. */
int dead_print_whole(const struct dead_letter_record *r, int64_t now_ms, struct err *e);

#endif
