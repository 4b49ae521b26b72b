/* A thread's list of locked days (sql/pipeline/locked.h), which it leaves out. Each thread has its own; the
 * claimer's is logged and shown in stats. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOCKS_H
#define POSTDATE_GATEWAY_RUNTIME_LOCKS_H

#include "gateway/runtime/runtime.h"
#include "sql/pipeline/locked.h"

struct locks {
    struct runtime *runtime;
    bool speaks; /* logs changes, and shows the days in stats */
    struct locked_days days;
    int64_t read_ms;  /* monotonic: when days was read */
    int64_t since_ms; /* monotonic: days have been locked since; 0: none is */
    bool said;
};

/* Reads locked days again once a second; no query while none is locked. -1: error. */
int locks_look(struct locks *l, struct pg *pg, struct err *e);
/* After a statement on `due` has failed. True: because of locked days in due; e is cleared: repeat it without
 * them. False: another error, e. */
bool locks_go_around(struct locks *l, struct pg *pg, struct due_range due, struct err *e);
/* The locked days that the claimer found, for stats. */
void locks_shown(struct runtime *rt, struct locked_days *out);
/* As JSON: "locked_days":["2026-11-16"]; "message" in it: the whole table. */
void locks_print(struct runtime *rt, struct buf *out);

#endif
