/* Shared by the files of `postdate import`. */
#ifndef POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_INTERNAL_H
#define POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message_id.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/progress.h"
#include "sql/operate/import.h"
#include <stdbool.h>
#include <stdio.h>

/* --- One call of rabbitmqctl: the request to plugin.erl, and its answer. */
#define IMPORT_NODE_SIZE 256
#define IMPORT_NODES_MAX 32
#define IMPORT_RUN_SIZE 33
#define IMPORT_RUNS_SIZE (60 * IMPORT_RUN_SIZE) /* separated by commas; plugin.erl keeps no more */

enum import_reading { IMPORT_READ_NOTHING, IMPORT_READ_FROM, IMPORT_READ_LOST };

struct import_ids {
    const struct message_id *ids; /* in the arena, sorted */
    size_t count;
};

struct import_entry {
    struct message_id id;
    int64_t due_ms;
    struct bytes exchange;
    const char *unknown;           /* why RabbitMQ could not read it; NULL: it could */
    size_t size;                   /* of the body */
    struct bytes properties, body; /* body without data: it was too large, or not asked for */
    struct bytes *keys;            /* the routing key, then those of CC and BCC */
    size_t key_count;
};

struct import_survey {
    struct bytes exchange;
    int64_t hour; /* since 1970 */
    bool soon;    /* due within the margin */
    int64_t count;
};

struct import_answer {
    struct arena arena;
    struct buf out, entry_list, survey_list;
    char node[IMPORT_NODE_SIZE];
    char before[IMPORT_RUNS_SIZE]; /* unfinished runs on the present table */
    int64_t now_ms;
    bool is_down; /* its tables are unknown */
    bool has_table;
    bool gone;   /* the node was restarted since the batch was read: nothing was taken */
    bool fenced; /* another run has begun */
    struct import_ids taken, mark, present;
    struct import_entry *entries;
    size_t count;
    enum import_reading next; /* where the next read begins; from next_ms on */
    int64_t next_ms;
    struct import_survey *surveys;
    size_t survey_count;
    char nodes[IMPORT_NODES_MAX][IMPORT_NODE_SIZE];
    size_t node_count;
};

#define IMPORT_EXCHANGES_MAX 256
#define IMPORT_REASONS_MAX 32

struct import_mapping {
    struct bytes from, to;
};

/* The command line. */
struct import_order {
    struct import_mapping mappings[IMPORT_EXCHANGES_MAX];
    size_t mapping_count;
    const char *nodes[IMPORT_NODES_MAX];
    size_t node_count;
    const char *vhost, *proof, *rabbitmqctl;
    int64_t margin_ms, rate, batch;
    bool dry_run;
};

/* Of one exchange of the plugin's. */
struct import_count {
    uint8_t name[MESSAGE_NAME_MAX];
    struct bytes from, to; /* from: its name */
    bool mapped;
    int64_t waiting, soon; /* by the survey: all; those that are due within the margin */
    int64_t read, stored, refused, left;
};

struct import_reason {
    char text[200]; /* "orders: the body has 12 bytes (allowed: at most 10)" */
    int64_t count;
};

/* One node's. */
struct import_run {
    struct cli *cli;
    const struct import_order *order;
    struct accept_rules rules;
    enum message_hold hold;
    char owner[IMPORT_OWNER_SIZE], run[IMPORT_RUN_SIZE];
    const char *node_asked; /* NULL: the one that rabbitmqctl reaches */
    char node[IMPORT_NODE_SIZE], before[IMPORT_RUNS_SIZE];
    char vhost[256];           /* the plugin's */
    struct import_place place; /* whose rows this run changes, once it has begun */
    struct import_count counts[IMPORT_EXCHANGES_MAX];
    size_t count_count;
    struct import_reason reasons[IMPORT_REASONS_MAX];
    size_t reason_count;
    int64_t other_reasons;
    int64_t found;     /* of messages of an unfinished earlier run: read by it, stored by this one */
    int64_t delivered; /* … delivered by the plugin meanwhile */
    int64_t known;     /* messages that the plugin had again, and that an earlier import has stored */
    bool proof_failed; /* the file ends within this node's part */
    struct progress progress;
    int64_t seq, done, total;
};

/* --- import_message.c */

const struct import_mapping *import_mapping_of(const struct import_order *o, struct bytes exchange);
/* From an entry to the row that is staged; views into the arena and the entry. now_ms is the database's. -1
 * with ERR_REJECT: why it can't be imported. */
int import_message(const struct import_run *run, const struct import_entry *entry, int64_t now_ms,
                   struct arena *a, struct import_row *out, struct err *e);

/* --- import_message.c */

/* NULL: there are too many, or the name is too long. */
struct import_count *import_count_of(struct import_run *run, struct bytes exchange);
void import_count_refusal(struct import_run *run, struct bytes exchange, const char *why);
/* Counts waiting messages by exchange; in a dry run also by hour. */
int import_count_survey(struct import_run *run, const struct import_answer *a, struct err *e);
void import_count_print_hours(const struct import_run *run, const struct import_answer *a);
void import_count_print(const struct import_run *run);
void import_count_print_reasons(const struct import_run *run);

/* --- cmd_import.c */

/* --- cmd_import.c */

/* --- import_message.c */

/* Creates the file, or continues it: truncates the part of a run that died. NULL: ERR_USAGE, or ERR_BUSY:
 * another import has it open. */
FILE *import_proof_open(const char *path, struct err *e);
/* Deletes the database's proof of messages of this node that the file (NULL: none) has already, because an
 * earlier run ended before that. Before this run stores anything. */
int import_proof_settle(struct import_run *run, FILE *file, struct err *e);
/* Counts the stored messages of this node, and writes them to the file (NULL: none), which is flushed to the
 * disk. */
int import_proof_write(struct import_run *run, FILE *file, struct err *e);
/* `postdate import verify FILE`; the exit code. */
int import_proof_verify(struct cli *cli, const char *path);

#endif
