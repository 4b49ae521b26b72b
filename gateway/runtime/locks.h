/* What one thread knows of days that somebody has locked (sql/pipeline/locked.h), so that it goes around
 * them. Each thread has its own; the claimer's is the one that is said in the log and shown in stats. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOCKS_H
#define POSTDATE_GATEWAY_RUNTIME_LOCKS_H

#include "gateway/runtime/runtime.h"
#include "sql/pipeline/locked.h"

struct locks {
    struct runtime *runtime;
    bool speaks; /* says it, and shows it in stats */
    struct locked_days days;
    int64_t read_ms;  /* monotonic: when days was read */
    int64_t since_ms; /* monotonic: since when days are locked; 0: none is */
    bool said;
};

/* Days that are locked are looked at again once a second; no question while none is. -1: error. */
int locks_look(struct locks *l, struct pg *pg, struct err *e);
/* After a statement about due has failed. True: it was locked out, and some of due are locked: e is cleared,
 * and going around them helps. False: e says what is wrong. */
bool locks_go_around(struct locks *l, struct pg *pg, struct due_range due, struct err *e);
/* What the claimer found, for stats. */
void locks_shown(struct runtime *rt, struct locked_days *out);
/* As JSON: "locked_days":["2026-11-16"]; "message" in it: the whole table. */
void locks_print(struct runtime *rt, struct buf *out);

#endif
