/* A point in the history of a database (sql/schema/001_19_history.sql), as recorded outside of the database.
 * Pure. */
#ifndef POSTDATE_CORE_MESSAGE_HISTORY_POINT_H
#define POSTDATE_CORE_MESSAGE_HISTORY_POINT_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdint.h>

#define HISTORY_LINEAGE_SIZE 37 /* a UUID's text, with the NUL */
#define HISTORY_TEXT_SIZE 128

struct history_point {
    char lineage[HISTORY_LINEAGE_SIZE]; /* "": no point */
    int64_t number;                     /* 1 or more */
    int64_t at_ms;                      /* since 1970, by the database's clock */
    int64_t held_until_ms;              /* all messages that RabbitMQ held then were due before this */
};

/* "lineage number at held_until". Returns out. */
const char *history_point_format(const struct history_point *p, char out[HISTORY_TEXT_SIZE]);
/* False: text is not a point, and *out is empty. */
bool history_point_read(struct bytes text, struct history_point *out);

#endif
