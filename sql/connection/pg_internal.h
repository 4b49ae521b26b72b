/* The internals of a connection to PostgreSQL, for sql/ only. */
#ifndef POSTDATE_SQL_CONNECTION_PG_INTERNAL_H
#define POSTDATE_SQL_CONNECTION_PG_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include "sql_embedded.h"
#include <libpq-fe.h>

#define PG_PARAMS_MAX 16
#define PG_LOCK_TIMEOUT "2s" /* of every session, unless its code sets another one */

struct pg {
    PGconn *conn;
    bool prepared[SQL_QUERIES];
    bool committed_locally; /* a commit was reported that the synchronous standby did not confirm */
    int notify_holder; /* pid of the session that, by PostgreSQL's last warning, prevents the cleanup of the
                          NOTIFY queue; 0: none */
    int64_t begun_us;  /* of pg_begin_at */
    bool cell_is_read; /* the next one is known */
    int cell;          /* the number of the database's cell; -1: it has none (sql/pipeline/store.c) */
    int answer_ms;     /* time limit of an answer; 0: unlimited while the server is alive */
    char sqlstate[6];  /* of the last failure that had one */
    bool hurried;      /* operate_hurry */
    char blocked_by[300]; /* the session whose lock the last statement waited for, if for long */
    void (*tell_blocked)(const char *who);
    bool other;        /* pg_open_other */
    bool pooled;       /* a proxy is in between: the backend is not the one announced at login */
    bool silent;       /* an answer took longer, or the server is dead: the connection was closed */
    bool no_partition; /* the last error was a row without a partition */
    /* libpq stopped waiting for an answer: the next one would be assigned to the wrong statement */
    bool lost;
};

/* Before what is asked of the last failure (pg_is_locked_out, pg_is_premature): one without a code leaves
 * that of an earlier one. */
static inline void pg_forget_failure(struct pg *c)
{
    c->sqlstate[0] = '\0';
}

enum pg_oid {
    PG_OID_BYTEA = 17,
    PG_OID_INT8 = 20,
    PG_OID_INT4 = 23,
    PG_OID_TEXT = 25,
    PG_OID_TIMESTAMPTZ = 1184,
    PG_OID_UUID = 2950
};

/* Values of a query, in binary format, always the caller's: a query only reads them, so it can be asked again
 * with the same. Written in its call, where nothing is allocated: pg_query(c, query, PG_WITH(as_id(id),
 * as_int4(n)), e); or added one by one to PG_PARAMS(p) = {0}, whose arrays are freed where its block ends. */
struct pg_value {
    enum { PG_VALUES_END, PG_NULL, PG_OWN, PG_VIEW, PG_LIST, PG_ARRAY } kind;
    union {
        struct {
            uint8_t data[16];
            int len;
        } own;
        struct bytes view;
        struct {
            enum pg_oid element;
            const void *items;
            size_t count;
        } list; /* becomes an array when it is sent */
        struct buf array;
    };
};
struct pg_params {
    struct pg_value values[PG_PARAMS_MAX];
};
#define PG_WITH(...) (&(const struct pg_params){{__VA_ARGS__}})
#define PG_PARAMS(p) struct pg_params p __attribute__((cleanup(pg_params_free)))
void pg_params_free(struct pg_params *params);
struct pg_value *pg_add(struct pg_params *p, struct pg_value v);

struct pg_value as_int4(int32_t v);
struct pg_value as_int8(int64_t v);
struct pg_value as_float8(double v);
struct pg_value as_bool(bool v);
struct pg_value as_time(int64_t ms); /* ms since 1970 as timestamptz */
struct pg_value as_id(struct message_id id);
/* The least id that is due then (ms since 1970; before: the least of all), as a bound: partitions begin
 * there.
 */
struct pg_value as_bound(int64_t ms);
struct pg_value as_bytes(struct bytes v); /* text or bytea; must outlive the call */
struct pg_value as_text(struct bytes v);  /* the same; data NULL: SQL null */
struct pg_value as_str(const char *s);    /* the same; NULL: SQL null */
struct pg_value as_null(void);
/* Arrays; the items must outlive the call. */
struct pg_value as_ids(const struct message_id *ids, size_t count);
struct pg_value as_texts(const struct bytes *texts, size_t count);
struct pg_value as_int8s(const int64_t *numbers, size_t count);

/* One-dimensional arrays in binary: begin, or add an array of so many items to what a query takes; then the
 * items. */
void pg_array_begin(struct buf *b, enum pg_oid element, size_t count);
struct buf *pg_add_array(struct pg_params *p, enum pg_oid element, size_t count);
void pg_array_bytes(struct buf *b, struct bytes v);
void pg_array_time(struct buf *b, int64_t ms);
void pg_array_id(struct buf *b, struct message_id id);
void pg_array_int4(struct buf *b, int32_t v);
void pg_array_int8(struct buf *b, int64_t v);
void pg_array_null(struct buf *b);

/* A parsed URL or conninfo string; the caller frees it with PQconninfoFree. NULL with ERR_CONFIG; the text
 * quotes nothing that may be part of a password. */
PQconninfoOption *pg_url_parse(const char *url, struct err *e);
/* Text in one line, cut to out_size. */
void pg_one_line(const char *text, char *out, size_t out_size);

enum err_kind pg_kind_of_sqlstate(const char *sqlstate);
/* Was a row rejected because it has no partition? constraint: PG_DIAG_CONSTRAINT_NAME, or NULL; table:
 * PG_DIAG_TABLE_NAME, or NULL. */
bool pg_is_no_partition(const char *sqlstate, const char *constraint, const char *table);
/* Is it the warning that a commit did not wait for its synchronous standby to the end? */
bool pg_is_local_commit(const char *sqlstate, const char *function);
/* The SQLSTATE in the verbose text of a refused login; false: there is none. */
bool pg_login_sqlstate(const char *text, char out[6]);

struct pg_attempt {
    const PQconninfoOption *options;
    const char *const (*last)[2]; /* keywords and values that override the options, up to a pair of NULL */
    PQnoticeReceiver on_notice;
    void *arg;     /* of on_notice */
    bool brief;    /* does not wait for silent hosts */
    bool slow;     /* out: there was a silent one */
    bool answered; /* out, without a connection: a server has sent an error */
};
/* Connects to the first suitable host, in at most about connect_timeout for each address. */
PGconn *pg_connect(struct pg_attempt *a, struct err *e);
/* The same to the server that c has, as the session `name`; sets what a connects to. */
PGconn *pg_connect_beside(const struct pg *c, const char *name, struct pg_attempt *a, struct err *e);
/* The same for c, the session `name`. That of pg_open begins with the host that was found behind silent ones
 * the last time; any thread. */
PGconn *pg_connect_any(const PQconninfoOption *options, const char *name, PQnoticeReceiver on_notice,
                       struct pg *c, struct err *e);

/* As pg_open, but if an answer takes longer than answer_ms, the connection is closed with ERR_AWAY.
 * Connections of pg_open are closed only if the server is dead, however long an answer takes. */
struct pg *pg_open_impatient(const char *url, const char *name, int answer_ms, struct err *e);
/* Is it a session of its own? ERR_CONFIG: a pooler shares it with others. Nothing is set before that. */
void pg_ignore_notice(void *arg, const PGresult *r);
/* Waits until all is sent, and an answer that is owed has come. False: it was given up, the connection is
 * lost. */
bool pg_wait(struct pg *c);
/* PQexec, in other words. */
PGresult *pg_exec_result(struct pg *c, const char *text);
/* COPY … FROM STDIN (FORMAT BINARY): begin, then rows into b, flushed now and then, then end, whatever
 * happened: rc is what the rows came to, and the first error is kept. b is empty at first; the caller frees
 * it. */
int pg_copy_begin(struct pg *c, const char *statement, struct buf *b, struct err *e);
int pg_copy_flush(struct pg *c, struct buf *b, struct err *e);
int pg_copy_end(struct pg *c, struct buf *b, int rc, struct err *e);

/* Runs a query of sql/query (prepared on first use) and returns its binary result, or NULL with e set. params
 * may be NULL. The caller clears the result with PQclear. Outside a transaction it is committed, and ERR_AWAY
 * also if the synchronous standby did not confirm that: for who asked, it is as if the answer had been lost.
 */
PGresult *pg_query(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e);
/* Prepares the statement, unless it is. Its name is sql_queries[query].name. */
int pg_prepare(struct pg *c, enum sql_query query, struct err *e);
/* r, where it is an answer to be believed, and committed if it was to be; else NULL, and r is cleared. */
PGresult *pg_believe(struct pg *c, PGresult *r, struct err *e);
/* As PQsendQueryPrepared; -1: no memory for an array. */
int pg_send_prepared(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e);
/* What libpq takes: pointers into params, and into `lists`, which is empty and gets the arrays that lists
 * become. How many; -1: no memory. */
int pg_params_list(const struct pg_params *params, struct pg_params *lists, const char *data[], int lengths[],
                   struct err *e);
/* pg_query where only the number of affected rows matters; -1 on error. */
int64_t pg_run(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e);
/* … where that does not matter either. */
int pg_do(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e);
/* … where the answer is one number or boolean (null: 0); -1 on error. */
int64_t pg_number(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e);
/* pg_query in a transaction of its own whose commit waits, also where the query writes nothing: what it
 * says that it has read is as safe then as what it has written. first: a SET LOCAL for it; NULL: none. Not
 * within a transaction. ERR_AWAY: it may be done, and nobody may be told so. */
PGresult *pg_query_sure(struct pg *c, const char *first, enum sql_query query, const struct pg_params *params,
                        struct err *e);
/* Simple-protocol text without parameters: transaction control, SET, DDL (several statements allowed). */
int pg_exec(struct pg *c, const char *text, struct err *e);
int pg_begin(struct pg *c, struct err *e);
/* For a statement over a whole day that asks for few of its rows: it reads them by an index, in the order
 * that it names. A day that has no statistics yet, just filled or restored, looks to the planner as if they
 * were anywhere in it. */
int pg_begin_by_index(struct pg *c, struct err *e);
int pg_go_by_index(struct pg *c, struct err *e); /* the rest of a transaction */
/* For a transaction in which RabbitMQ is asked, some hundred times, each of which may take half a minute
 * where a node stands still: nobody else may begin before this one has given up. Where it lost its lock all
 * the same, what it writes down at the end fails. */
int pg_begin_patient(struct pg *c, struct err *e);
/* The same, and remembers now() of the transaction: the server read its clock after this request came. */
int pg_begin_at(struct pg *c, const char *lock_timeout, struct err *e);
/* -1 also when the commit did not reach the synchronous standby. */
int pg_commit(struct pg *c, struct err *e);
/* The same of a transaction that may have written nothing, while its answer rests on what it has read. */
int pg_commit_sure(struct pg *c, struct err *e);
/* Waits until all that this session has read is as safe as what it writes. Not within a transaction. */
int pg_confirm(struct pg *c, struct err *e);
/* What ends in a COMMIT: as pg_commit. */
int pg_end(struct pg *c, const char *text, struct err *e);
void pg_rollback(struct pg *c);
/* Commits, if rc is 0; else, or where that fails, rolls back. 0 or -1. */
int pg_finish(struct pg *c, int rc, struct err *e);
/* Classifies a failed result or the connection's state; the text has one line. Returns -1. */
int pg_fail(struct pg *c, const PGresult *r, struct err *e);

/* The first column, from 0 on, with a value that is shorter or longer than its type is; -1: none. */
int pg_misfit(const PGresult *r);
/* A value whose size is not the one that is asked for reads as null. */
bool pg_is_null(const PGresult *r, int row, int column);
int64_t pg_any_number(const PGresult *r); /* the first, of whatever size; null, no row: 0 */
int32_t pg_int4(const PGresult *r, int row, int column);
int64_t pg_int8(const PGresult *r, int row, int column);
double pg_float8(const PGresult *r, int row, int column);
bool pg_bool(const PGresult *r, int row, int column);
int64_t pg_time_ms(const PGresult *r, int row, int column); /* rounds up; -1 for null */
int64_t pg_time_us(const PGresult *r, int row, int column); /* µs since 1970 */
struct message_id pg_id(const PGresult *r, int row, int column);
struct bytes pg_bytes(const PGresult *r, int row, int column); /* view into the result; data NULL for null */
/* The same in the arena. False: it does not fit into memory. What is empty has no data. */
bool pg_copy(const PGresult *r, int row, int column, struct arena *a, struct bytes *out);
void pg_text(const PGresult *r, int row, int column, char *out, size_t out_size); /* "" for null */

int64_t pg_time_from_ms(int64_t ms); /* to µs since 2000-01-01, the wire form of timestamptz */

/* Rows into variables, by a table: where each column goes, in order; what its type is says how it is read. A
 * null is 0, false, "" or no data, of a time -1. What is copied goes to the arena. */
struct pg_to {
    enum { PG_END, PG_INT4, PG_INT8, PG_FLOAT8, PG_BOOL, PG_ID, PG_CHARS, PG_COPY, PG_TEXTS, PG_MS } kind;
    void *at;
    size_t size;
};
#define PG_KIND(v)                                                                                           \
    _Generic((v), int32_t: PG_INT4, uint32_t: PG_INT4, int64_t: PG_INT8, double: PG_FLOAT8, bool: PG_BOOL, char *: PG_CHARS, \
    struct message_id: PG_ID, struct bytes: PG_COPY, struct pg_texts: PG_TEXTS)
#define PG_TO(v) ((struct pg_to){PG_KIND(v), &(v), sizeof(v)})
#define PG_TIME(v) ((struct pg_to){PG_MS, &(v), sizeof(v)}) /* int64_t, ms since 1970 */
#define PG_ROW(...) ((const struct pg_to[]){__VA_ARGS__, {.kind = PG_END}})

/* a: NULL, where nothing is copied. False: no memory, or a column is missing or has a value of another size.
 */
bool pg_read(const PGresult *r, int row, const struct pg_to *to, struct arena *a);
/* The first row of an answer, which is cleared. 1; 0: there is none, and nothing was read; -1: the answer was
 * NULL, with e set, or as pg_read. */
int pg_take(PGresult *r, const struct pg_to *to, struct arena *a, struct err *e);
/* pg_query and that, of a query that always has a row: none is an error, too. 0 or -1. */
int pg_ask(struct pg *c, enum sql_query query, const struct pg_params *params, const struct pg_to *to,
           struct err *e);
/* All rows of an answer, which is cleared, as an array: each read into the item that the table is about. It
 * is in the arena; where that is NULL the caller frees it. *out: a pointer to such items. How many, or -1. */
struct pg_rows {
    const struct pg_to *to;
    const void *item;
    size_t size;
    struct arena *arena;
};
int pg_take_all(PGresult *r, const struct pg_rows *rows, void *out, struct err *e);

#endif
