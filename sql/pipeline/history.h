/* How far the database has come, and whether it has gone back (sql/schema/001_19_history.sql). */
#ifndef POSTDATE_SQL_PIPELINE_HISTORY_H
#define POSTDATE_SQL_PIPELINE_HISTORY_H

#include "core/base/err.h"
#include "core/message/history_point.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"

#define HISTORY_DUE_MAX 100000
/* Times in ms since 1970; -1: there is none. */
struct history_report {
    struct history_point point;
    int64_t lost_number;    /* given when it was found last that the database had gone back; 0: never */
    int64_t found_ms;       /* when that was */
    int64_t from_ms, to_ms; /* what was committed in between, and up to a second later, is forgotten */
    int64_t look_until_ms;  /* what RabbitMQ held then is due before */
    int64_t now_ms;
    int64_t due; /* messages that were due then and are not delivered, as it knows: HISTORY_DUE_MAX at most;
                    -1: could not be counted */
};

#define HISTORY_DUE_SIZE 80
/* For people: what `due` of the report says, as half a sentence. Returns out. */
const char *history_due_text(int64_t due, char out[HISTORY_DUE_SIZE]);

/* Compares the database with the latest point that is known of it (no lineage: none), and raises its number,
 * once a second at the most. window_ms: so far ahead messages are handed over. Commits synchronously: what is
 * in out->point the database does not lose by crashing. */
int history_note(struct pg *c, const struct history_point *known, int64_t window_ms,
                 struct history_report *out, struct err *e);

/* Says once more that these were delivered: to a database that may have forgotten it, or that they were
 * claimed. Returns how many it had forgotten, with a synchronous commit for them; -1. What somebody has
 * locked is left out. */
int64_t history_say_delivered(struct pg *c, const struct message_id *ids, size_t count, struct err *e);

/* Which of these ids the database knows: known[i]. 0 or -1. */
int history_find_known(struct pg *c, const struct message_id *ids, size_t count, bool *known, struct err *e);
/* Stores these as handed over, where it does not know them: id, names, properties and body. grace_ms:
 * handover.grace. Returns how many were stored, with a synchronous commit, or -1. */
int64_t history_store(struct pg *c, const struct message *const *messages, size_t count, int64_t grace_ms,
                      struct err *e);

#endif
