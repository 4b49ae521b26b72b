#include "sql/admin/moved_prune.h"

#include "sql/operate/lookup_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

#define ROUNDS_MAX 1000 /* the rest waits for the next hour */

int moved_prune(struct pg *c, struct err *e)
{
    int64_t *days = NULL, removed = 1;
    int n = lookup_filled_days(c, &days, e);
    if (n <= 0) {
        free(days);
        return n;
    }
    /* Ids sort like due times: all that are less belong to days before the first one that is kept. */
    struct message_id bound = message_id_least(days[0]);
    free(days);
    for (int i = 0; i < ROUNDS_MAX && removed > 0; i++) {
        struct pg_params p = {0};
        pg_add_id(&p, &bound);
        removed = pg_run(c, sql_query_moved_prune, &p, e);
    }
    return removed < 0 ? -1 : 0;
}
