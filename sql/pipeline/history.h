/* Points in the history of the database: has it lost commits, by a restore or a fail-over
 * (sql/schema/001_19_history.sql)? */
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
    int64_t lost_number;    /* the number at which a loss of commits was found last; 0: never */
    int64_t found_ms;       /* when it was found */
    int64_t from_ms, to_ms; /* commits in between, and up to a second later, are lost */
    int64_t look_until_ms;  /* all messages that RabbitMQ held then are due before this */
    int64_t now_ms;
    int64_t due; /* messages due in that time that are not delivered according to the database:
                    HISTORY_DUE_MAX at most; -1: could not be counted */
};

#define HISTORY_DUE_SIZE 80
/* `due` of a report for users, as a part of a sentence. Returns out. */
const char *history_due_text(int64_t due, char out[HISTORY_DUE_SIZE]);

/* Compares the database with its latest known point (without lineage: none known), and increments its number,
 * at most once a second. window_ms: handover.window. Commits synchronously, so that a crash of the database
 * does not lose out->point. */
int history_note(struct pg *c, const struct history_point *known, int64_t window_ms,
                 struct history_report *out, struct err *e);

/* Records again that these messages were delivered, in a database that may have lost that, or their claim.
 * Returns how many it had lost, committed synchronously; -1: error. Locked rows are left out. */
int64_t history_say_delivered(struct pg *c, const struct message_id *ids, size_t count, struct err *e);

/* Which of these ids the database knows: known[i]. 0 or -1. */
int history_find_known(struct pg *c, const struct message_id *ids, size_t count, bool *known, struct err *e);
/* Stores those messages that the database does not have, as handed over: id, names, properties and body.
 * grace_ms: handover.grace. Returns how many were stored, with a synchronous commit, or -1. */
int64_t history_store(struct pg *c, const struct message *const *messages, size_t count, int64_t grace_ms,
                      struct err *e);

#endif
