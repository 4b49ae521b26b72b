/* The cells of several Postdates: where the database of each is. One INI file:
 *
 *   [cell north]
 *   postgres.url = postgresql://postdate@db-north/postdate
 *   number = 0
 */
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
    int number;                   /* 0 to 255, as its cell.number; -1: not said */
    char *postgres_url;           /* owned */
};
/* Read-only once it is loaded, so any thread may read it. */
struct cells {
    struct cell list[CELLS_MAX]; /* in the order of the file */
    size_t count;                /* from 1 */
};

/* Every mistake is reported through report (may be NULL) with its line, the first one is also put into e:
 * ERR_CONFIG, or ERR_PERMISSION for a file that this user may not read. -1 when there was any; then there is
 * nothing to free. A file with passwords that every user may read is warned of, as a configuration is. */
int cells_load(struct cells *c, const char *path, const struct config_report *report, struct err *e);
void cells_free(struct cells *c);

/* In which order to ask them for a message: those first whose number the id has. id NULL: as in the file. */
void cells_order(const struct cells *c, const struct message_id *id, size_t out[CELLS_MAX]);

/* May one of them have made it? False: each says its number, and none is the id's: one is missing, or the id
 * was made where there was no number. */
bool cells_may_have(const struct cells *c, struct message_id id);

#endif
