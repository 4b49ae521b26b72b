/* A synchronous standby: what is committed on the primary alone is visible, and lost with it.
 * docs/internals/model.md explains it, without Promela. `make model` runs it; run.py there has the bounds and the mistakes.
 *
 * One message, that somebody stores, and somebody cancels, and a gateway claims, publishes and settles. Each commit is the next place in the
 * WAL. The standby has all up to some place. A COMMIT waits until it has its place; its wait may be cancelled, or its session killed: then
 * nobody knows, and whoever asked asks again. The primary may die at any time; then the standby is the database. */
#ifndef BUG
#define BUG 0
#endif
#define PLACES 12

mtype = { NONE, SCHEDULED, CLAIMED, DELIVERED, CANCELLED };
mtype wal[PLACES] = NONE;       /* the row as it is after each commit; place 0: before the first */
byte end, has, life;            /* the newest commit; what the standby has; 1: the standby is the database */
bit said_stored, said_cancelled, delivered, doubt;
byte cancelled_waits;

#define ROW wal[end]
#define SAFE(place) (life == 1 || has >= (place))
inline commit(what) { wal[end + 1] = what; end++; at = end; then = life }
/* in sql/connection/pg_sure.c: pg_query_sure. yes: the commit is safe. Else its wait was cancelled, or the primary died in it. */
inline await(yes) {
    if
    :: atomic { then == life && SAFE(at) -> yes = 1 }
    :: atomic { then == life && !SAFE(at) && cancelled_waits < 3 -> cancelled_waits++; yes = 0 }
    :: atomic { then != life -> yes = 0 }
    fi
}

/* in sql/pipeline/commit_check.c: store_was_committed. What is found is answered after one more commit was waited for. */
proctype storer() {
    byte at, then;
    bit yes;
again:
    atomic {
        if
        :: ROW == NONE -> commit(SCHEDULED)
        :: ROW != NONE && BUG != 1 -> commit(ROW)       /* 1: what is visible is answered at once */
        :: ROW != NONE && BUG == 1 -> said_stored = 1; goto over
        fi };
    await(yes);
    if
    :: yes -> said_stored = 1
    :: !yes -> goto again
    fi;
over:
    skip
}

/* in sql/schema/001_40_cancel.sql: do_cancel. A yes that was read waits like one that was written. */
proctype canceller() {
    byte at, then;
    bit yes;
again:
    atomic {
        if
        :: ROW == SCHEDULED -> assert(!delivered || doubt); commit(CANCELLED)
        :: ROW == CANCELLED && BUG != 2 -> commit(CANCELLED)
        :: ROW == CANCELLED && BUG == 2 -> said_cancelled = 1; goto over
        :: ROW == NONE || ROW == CLAIMED || ROW == DELIVERED -> goto over       /* not found, or too late */
        fi };
    await(yes);
    if
    :: yes -> said_cancelled = 1; assert(!delivered)
    :: !yes -> goto again
    fi;
over:
    skip
}

/* in sql/query/batch_claim.sql: claimed as materialized. Nothing is published by a claim that only the primary has. */
proctype gateway() {
    byte at, then;
    bit yes;
end_idle:
    do
    :: atomic { ROW == SCHEDULED || ROW == CLAIMED -> doubt = (ROW == CLAIMED -> 1 : doubt); commit(CLAIMED) };     /* what it had claimed before is in doubt */
        await(yes);
        if
        :: yes || BUG == 3 ->
            atomic { assert(!said_cancelled); assert(!delivered || doubt); delivered = 1 };
            /* in sql/schema/001_14_batch.sql: batch_settle. What was forgotten is said again. in sql/schema/001_19_history.sql: history_delivered */
says:
            atomic {
                if
                :: ROW == CLAIMED || ROW == SCHEDULED -> commit(DELIVERED)
                :: ROW == DELIVERED -> commit(DELIVERED)
                :: ROW == NONE || ROW == CANCELLED -> goto end_idle
                fi };
            await(yes);
            if
            :: yes
            :: !yes -> goto says
            fi
        :: !yes && BUG != 3
        fi;
        yes = 0; at = 0; then = 0
    od
}

proctype servers() {
end_idle:
    do
    :: atomic { !life && has < end -> has++ }
    :: atomic { !life -> end = has; life = 1 }          /* what the standby did not have is gone */
    od
}

proctype judge() {
    timeout;
    assert(!said_stored || ROW == CANCELLED || delivered && ROW == DELIVERED);
    assert(!said_cancelled || !delivered && ROW == CANCELLED)
}

init { atomic { run storer(); run canceller(); run gateway(); run servers(); run judge() } }
