/* One call of the broker's administration: what is asked of plugin.erl, and what it answers. */
#ifndef POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_CALL_H
#define POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_CALL_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message_id.h"
#include <stdbool.h>

#define IMPORT_NODE_SIZE 256
#define IMPORT_NODES_MAX 32
#define IMPORT_BATCH_MAX 4000 /* their ids are an argument of a program: at most 128 KiB */
#define IMPORT_RUN_SIZE 33
#define IMPORT_RUNS_SIZE (60 * IMPORT_RUN_SIZE) /* separated by commas; plugin.erl keeps no more */

enum import_reading { IMPORT_READ_NOTHING, IMPORT_READ_FROM, IMPORT_READ_LOST };

struct import_call {
    const char *rabbitmqctl, *node; /* node NULL: the one that it reaches by itself */
    const char *owner, *run;        /* whose it is, and its token: hexadecimal digits */
    const char *vhost;
    int64_t margin_ms;
    bool is_dry; /* nothing is changed */
    bool begins; /* the token is set; what an earlier run has taken is told; what waits is counted */
    bool ends;   /* token and marks are removed */

    int64_t seq; /* the batch of which entries are taken; 0: nothing is */
    const struct message_id *take;
    size_t take_count;

    const struct message_id *look; /* which of these does it still have? */
    size_t look_count;
    int64_t look_from_ms, look_to_ms;

    enum import_reading reading;
    int64_t from_ms; /* what is due after this */
    int64_t next_seq, batch, bytes;
    bool with_bodies;
    size_t max_body;
};

struct import_ids {
    const struct message_id *ids; /* in the arena, sorted */
    size_t count;
};
bool import_ids_has(const struct import_ids *list, struct message_id id);

struct import_entry {
    struct message_id id;
    int64_t due_ms;
    struct bytes exchange;
    const char *unknown;                 /* why the broker could not read it; NULL: it could */
    size_t size;                         /* of the body */
    struct bytes properties, keys, body; /* keys: base64, separated by commas; body without data: it was too
                                            large, or not asked for */
};

struct import_survey {
    struct bytes vhost, exchange;
    int64_t hour; /* since 1970 */
    bool soon;    /* due within the margin */
    int64_t count;
};

struct import_answer {
    struct arena arena;
    struct buf out, entry_list, survey_list;
    char node[IMPORT_NODE_SIZE];
    char before[IMPORT_RUNS_SIZE]; /* the runs that came to no end on the table as it is now */
    int64_t now_ms;
    bool has_timer; /* the plugin's process runs */
    bool is_down;   /* nothing is known of its tables */
    bool has_table, ended;
    bool gone;   /* the node was started anew since the batch was read: nothing was taken */
    bool fenced; /* another run has begun */
    struct import_ids taken, marks, present;
    struct import_entry *entries;
    size_t count;
    enum import_reading next; /* what is to be read next; from next_ms on */
    int64_t next_ms;
    struct import_survey *surveys;
    size_t survey_count;
    char nodes[IMPORT_NODES_MAX][IMPORT_NODE_SIZE];
    size_t node_count;
};

void import_answer_init(struct import_answer *a);
void import_answer_free(struct import_answer *a);
/* ERR_AWAY: rabbitmqctl says why not, or its answer is not whole. What was asked may be done, or be done
 * later: the next run finds out. */
int import_call_run(const struct import_call *call, struct import_answer *a, struct err *e);

#endif
