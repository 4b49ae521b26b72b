/* The list of cells: the database of each. One INI file:
 *
 *   [cell north]
 *   postgres.url = postgresql://postdate@db-north/postdate
 *   number = 0 */
#ifndef POSTDATE_GATEWAY_CONFIG_CELLS_H
#define POSTDATE_GATEWAY_CONFIG_CELLS_H

#include "core/base/err.h"
#include "core/message/message_id.h"
#include "gateway/config/config.h"
#include <stddef.h>

#define CELLS_MAX 64
#define CELL_NAME_MAX 40

struct cell {
    char name[CELL_NAME_MAX + 1]; /* letters, digits, '.', '_' and '-' */
    int number;                   /* 0 to 255, as its cell.number; -1: not given */
    char *postgres_url;           /* owned */
};
/* Read-only once it is loaded, so any thread may read it. */
struct cells {
    struct cell list[CELLS_MAX]; /* in the order of the file */
    size_t count;                /* from 1 */
};

/* Every error is reported through report (may be NULL) with its line; the first one is also put into e:
 * ERR_CONFIG, or ERR_PERMISSION for a file that this user may not read. -1 if there was any; then there is
 * nothing to free. Warns of a file with passwords that every user may read, as for a configuration. */
int cells_load(struct cells *c, const char *path, const struct config_report *report, struct err *e);
void cells_free(struct cells *c);

/* The order in which to query the cells for a message: those with the number in its id first. id NULL: as in
 * the file. */
void cells_order(const struct cells *c, const struct message_id *id, size_t out[CELLS_MAX]);

/* May one of the cells have made this id? False: each has a number, and none is the id's: a cell is missing,
 * or the id was made by a database without a number. */
bool cells_may_have(const struct cells *c, struct message_id id);

#endif
