/* What the files of `postdate import` share. */
#ifndef POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_INTERNAL_H
#define POSTDATE_GATEWAY_CLI_IMPORT_IMPORT_INTERNAL_H

#include "core/message/accept.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/import/import_call.h"
#include "gateway/cli/progress.h"
#include "sql/operate/import.h"
#include <stdio.h>

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
    int64_t first_ms, last_ms; /* of what was read */
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
    int64_t found;     /* of those that an earlier run left behind: read by it, stored by this one */
    int64_t delivered; /* … delivered by the plugin meanwhile */
    int64_t known;     /* the plugin had again what an earlier import has stored */
    bool proof_failed; /* the file ends within this node's part */
    struct progress progress;
    int64_t seq, done, total;
};

extern volatile int import_interrupted;

/* --- import_message.c */

const struct import_mapping *import_mapping_of(const struct import_order *o, struct bytes exchange);
/* From an entry to the row that is staged; views into the arena and the entry. now_ms is the database's. -1
 * with ERR_REJECT: why it can't be imported. */
int import_message(const struct import_run *run, const struct import_entry *entry, int64_t now_ms,
                   struct arena *a, struct import_row *out, struct err *e);

/* --- import_count.c */

/* NULL: there are too many, or the name is too long. */
struct import_count *import_count_of(struct import_run *run, struct bytes exchange);
void import_count_refusal(struct import_run *run, struct bytes exchange, const char *why);
/* What waits, by exchange; in a dry run also by hour. */
int import_count_survey(struct import_run *run, const struct import_answer *a, struct err *e);
void import_count_print_hours(const struct import_run *run, const struct import_answer *a);
void import_count_print(const struct import_run *run);
void import_count_print_reasons(const struct import_run *run);

/* --- import_resume.c */

/* Makes rows messages, all of them; waits a while for what is in the way. */
int import_wake_all(struct import_run *run, struct import_row *rows, size_t count, struct err *e);
/* What an earlier run has left behind, asleep or taken. `a` is the answer to the call that began this run. */
int import_resume(struct import_run *run, struct import_answer *a, struct err *e);
/* import_drop of this run's. */
int import_drop_ids(const struct import_run *run, const struct message_id *ids, size_t count, struct err *e);
/* The call that this run makes, with all that does not change in it. */
struct import_call import_call_of(const struct import_run *run);
/* import_call_run, and another run is an error. */
int import_ask(const struct import_run *run, const struct import_call *call, struct import_answer *a,
               struct err *e);

/* --- import_node.c */

/* One node, from its first call to its proof. 0: all that was read is stored or left; 1: some were refused;
 * -1: error. */
int import_node(struct import_run *run, FILE *proof, struct err *e);

/* --- import_proof.c */

/* Creates or continues it: what a run that died has not ended is cut off. NULL: ERR_USAGE, or
 * ERR_BUSY: another import has it open. */
FILE *import_proof_open(const char *path, struct err *e);
/* What the file (NULL: none) has of this node already is forgotten in the database: an earlier run was ended
 * before it did that. Before this run stores anything. */
int import_proof_settle(struct import_run *run, FILE *file, struct err *e);
/* Counts what is stored of this node, and writes it to the file (NULL: none), which is on the disk then. */
int import_proof_write(struct import_run *run, FILE *file, struct err *e);
/* `postdate import verify FILE`; the exit code. */
int import_proof_verify(struct cli *cli, const char *path);

#endif
