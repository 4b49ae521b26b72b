/* The lane that the gateway holds: store, claim, cancel, replace, publish, settle, put back, die, take over.
 * docs/internals/model.md explains it, without Promela. `make model` runs it; run.py there has the bounds and the mistakes.
 *
 * Message m is due at m + 1. What a transaction writes is seen when it commits, so an `atomic` below is either one look or one commit;
 * between two of them anybody else may do anything. `in FILE: NAME` says where the step is in the tree. */
#ifndef M
#define M 2             /* messages, 3 at most */
#endif
#ifndef G
#define G 1             /* gateways */
#endif
#ifndef STORED          /* masks of messages: stored by somebody; cancelled by somebody; rescheduled from 0 to this one … */
#define STORED 3
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef KEYED           /* … stored with the one key; of these with on_conflict keep; with a deadline; with a rate */
#define KEYED 0
#endif
#ifndef KEEPS
#define KEEPS 0
#endif
#ifndef DEADLINES
#define DEADLINES 0
#endif
#ifndef RATED
#define RATED 0
#endif
#ifndef CRASHES         /* how often: a gateway dies; sleeps past its lease; does not hear whether its claim was committed … */
#define CRASHES 0
#endif
#ifndef SLEEPS
#define SLEEPS 0
#endif
#ifndef UNCLEAR
#define UNCLEAR 0
#endif
#ifndef REFUSALS        /* … RabbitMQ refuses a message; what is left of a range is put back */
#define REFUSALS 0
#endif
#ifndef BACKS
#define BACKS 0
#endif
#ifndef BUG
#define BUG 0
#endif

/* With -DSTEPS a simulation prints each step by name, and what is true after it: tests/live/model_kit.py does the same in PostgreSQL. `a`: which message or claim. */
#ifdef STEPS
#define STATE printf("| %e %e %e %d %d %d %d %d %d %d", st[0], st[1], st[2], owner[0], owner[1], owner[2], doubt, delivered, fence, frontier); \
    printf(" %d %d %d %d %d %d %d %d %d %d %d %d", b_is, b_done, b_back, b_from[0], b_from[1], b_from[2], b_owner[0], b_owner[1], b_owner[2], b_took[0], b_took[1], b_took[2]); \
    printf(" %d %d %d %d %d %d %d %d\n", b_settled[0], b_settled[1], b_settled[2], looked, upto, late, table, lives)
#define STEP(name, a) printf("STEP %d ", _pid); printf(name); printf(" %d ", a); STATE;
#define STEP_OF(name, a) printf("STEP %d ", _pid); printf(name); printf(" %d %d %d %d %d ", a, me, mine, one, doubted); STATE;    /* of a gateway */
#define ONCE(condition) (condition)     /* who comes before that finds nothing: few walks are spent on it */
#else
#define STEP(name, a)
#define STEP_OF(name, a)
#define ONCE(condition) (1)
#endif

#define DUE(m) ((m) + 1)
#define BIT(m) (1 << (m))
#define IN(mask, m) (((mask) >> (m)) & 1)
#define FOR_EACH(m) m = 0; do :: m == M -> m = 0; break :: m < M ->
#define NEXT(m) m++ od

/* PLAIN: next_at is null. OPEN: a next_at, and nobody's; in doubt where doubt[m]. WAITS: for a slot of its rate. OWNED: claimed one by one. */
mtype = { NONE, PLAIN, OPEN, WAITS, OWNED, DELIVERED, CANCELLED, SUPERSEDED, EXPIRED, FAILED };
mtype st[3] = NONE;
byte locked, touched;           /* masks: somebody has the row locked; has or had (xmax) */
byte doubt, delivered;          /* state claimed without an owner; RabbitMQ has it */
byte owner[3], moved[3];        /* moved: 1 + what the message became */
byte passed;                    /* its deadline */

byte fence, frontier;           /* due times */
byte gate;                      /* who has the lock of the frontier: 1 + gateway */
byte has_id, running;           /* of transactions that store: the one of message m is bit m */

/* A claim is known by where its range ends. Took: seen by its snapshot and not skipped. Settled: upto and pending, as a set. */
byte b_from[3], b_owner[3], b_took[4], b_settled[4];
byte b_is, b_done, b_back, b_lock;

byte looked, upto, below, seen_running, since[3], late;         /* late_mark and late */

byte table, lives;              /* instances: their rows; those with a session and a lease */
byte next_instance = 1, cur[2];
byte crashes, sleeps, unclear, refusals, backs;

byte key_holder, key_new, key_lock;     /* 1 + message; who is inserting the key's row; who has it locked */
byte slot_next, slot[3], slots_used;
byte rate_lock;                 /* 1 + gateway */

/* So a message looks to users: delivered where its claim says so, live where it can be cancelled. In sql/schema/001_15_stands.sql: message_stands */
#define TAKEN(m) (st[m] == PLAIN && DUE(m) <= fence)
#define CLAIM_OF(m) (IN(b_is, m) -> (m) : (IN(b_is, (m) + 1) -> (m) + 1 : (IN(b_is, (m) + 2) -> (m) + 2 : 3)))     /* 3: none */
#define IS_SETTLED(m) (IN(b_took[CLAIM_OF(m)], m) && (IN(b_settled[CLAIM_OF(m)], m) || IN(b_done, CLAIM_OF(m))))
#define IS_DELIVERED(m) (st[m] == DELIVERED || st[m] == PLAIN && IS_SETTLED(m))
#define IS_LIVE(m) ((st[m] == PLAIN && DUE(m) > fence || st[m] == OPEN || st[m] == WAITS) && !IN(doubt, m))
#define IS_FREE(m) (st[m] == NONE || st[m] == CANCELLED || st[m] == SUPERSEDED || st[m] == EXPIRED || st[m] == FAILED)
#define IS_UNSETTLED(m) (IN(KEYED, m) && !IS_FREE(m) && !IS_DELIVERED(m))

/* What every order of steps must keep. */
inline deliver(m) {
    assert(st[m] != CANCELLED);                                 /* never cancelled and delivered */
    assert(st[m] != SUPERSEDED && st[m] != EXPIRED);            /* nor replaced, moved or expired and delivered */
    assert(!IN(delivered, m) || IN(doubt, m));                  /* twice only what was in doubt */
    delivered = delivered | BIT(m)
}
inline settle_as(m, what) {
    assert(what != CANCELLED && what != SUPERSEDED && what != EXPIRED || !IN(delivered, m));
    st[m] = what
}
#define ONE_LIVE assert(IS_UNSETTLED(0) + IS_UNSETTLED(1) + IS_UNSETTLED(2) <= 1)     /* one message a key */

/* in sql/schema/001_14_batch.sql: fence_for_store. The transaction has its id before it reads the fence. */
inline begin_store(m, f) {
#if BUG == 1            /* reads the fence before it has an id */
    atomic { f = fence; STEP("store_fence", m) };
    atomic { has_id = has_id | BIT(m); running = running | BIT(m); STEP("store_id", m) };
#else
    atomic { has_id = has_id | BIT(m); running = running | BIT(m); STEP("store_id", m) };
    atomic { f = fence; STEP("store_fence", m) };
#endif
}
/* in sql/schema/001_14_batch.sql: next_at_of */
#define STORED_AS(m, f) (DUE(m) > f -> PLAIN : OPEN)

/* in sql/schema/001_32_schedule.sql: draft_store. The intake does the same for many. */
proctype writer(byte m) {
    byte f;
    begin_store(m, f);
    if
    :: atomic { st[m] = STORED_AS(m, f); running = running & ~BIT(m); STEP("commit", m) }
    :: atomic { running = running & ~BIT(m); STEP("rollback", m) }
    fi
}

/* in sql/schema/001_15_stands.sql: message_lock. The lock, then the fence again. */
inline lock_message(t) {
    do
    :: atomic { !IN(locked, t) ->
        if
        :: st[t] == SUPERSEDED && moved[t] -> t = moved[t] - 1; STEP("lock_again", t)
        :: st[t] == PLAIN || st[t] == OPEN || st[t] == WAITS -> locked = locked | BIT(t); touched = touched | BIT(t); STEP("lock", t) break
        :: else -> STEP("lock_in_vain", t) goto over
        fi }
    od;
    atomic {
        if
        :: (BUG != 2 && TAKEN(t)) || IN(doubt, t) || st[t] == OWNED -> STEP("too_late", t) goto unlock
        :: else -> skip; STEP("in_time", t)
        fi };
}

/* in sql/schema/001_40_cancel.sql: do_cancel */
proctype canceller(byte m) {
    byte t;
    atomic { ONCE(st[m] != NONE) -> t = (moved[m] -> moved[m] - 1 : m);
        if
        :: TAKEN(t) || IN(doubt, t) || IS_FREE(t) || st[t] == OWNED || st[t] == DELIVERED -> STEP("cancel_in_vain", m) goto over
        :: else -> skip; STEP("cancel_looks", m)
        fi };
    lock_message(t);
    if
    :: atomic { settle_as(t, CANCELLED); locked = locked & ~BIT(t); STEP("commit", t) goto over }
    :: skip                     /* rolled back: what shows is that somebody had it locked */
    fi;
unlock:
    atomic { locked = locked & ~BIT(t); STEP("rollback", t) };
over:
    skip
}

/* in sql/schema/001_41_reschedule.sql: do_reschedule. Message 0 becomes message m. */
proctype mover(byte m) {
    byte f, t;
    atomic { ONCE(st[0] != NONE) ->
        if
        :: st[0] == NONE -> STEP("move_in_vain", m) goto over
        :: else -> t = (moved[0] -> moved[0] - 1 : 0); STEP("move_looks", m)      /* it locks what it finds, whatever that is */
        fi };
    lock_message(t);
    begin_store(m, f);
    if
    :: atomic { settle_as(t, SUPERSEDED); st[m] = STORED_AS(m, f); moved[t] = 1 + m; running = running & ~BIT(m); locked = locked & ~BIT(t); STEP("commit", m) goto over }
    :: running = running & ~BIT(m)
    fi;
unlock:
    atomic { locked = locked & ~BIT(t); STEP("rollback", t) };
over:
    skip
}

/* in sql/schema/001_31_key.sql: key_decide. Who finds the key taken keeps what has it, or replaces that. */
proctype keyed(byte m) {
    byte f, h;
    bit has_lock, replaces;
again:
    atomic { !key_new ->
        if
        :: !key_holder -> key_new = 1 + m; STEP("key_new", m) goto store
        :: else -> h = key_holder - 1; STEP("key_found", m)
        fi };
    atomic {
        if                      /* in sql/schema/001_31_key.sql: key_standing */
        :: !IS_FREE(h) && IN(KEEPS, m) -> STEP("key_kept", m) goto over
        :: else -> skip; STEP("key_wanted", m)
        fi };
#if BUG != 10           /* takes the key without its lock */
    atomic { !key_lock ->
        if
        :: key_holder == 1 + h -> key_lock = 1 + m; STEP("key_locked", m)
        :: else -> STEP("key_gone", m) goto again
        fi };
#endif
looks:
    if
    :: atomic { IN(KEEPS, m) ->
            if
            :: !IS_FREE(h) -> STEP("key_kept", m) goto over
            :: else -> skip; STEP("key_free", m)
            fi }
    :: atomic { !IN(KEEPS, m) && !IS_LIVE(h) ->
            if
            :: !IS_FREE(h) && !IS_DELIVERED(h) -> STEP("key_refused", m) goto over         /* it is too late */
            :: else -> skip; STEP("key_free", m)
            fi }
    /* in sql/schema/001_15_stands.sql: message_supersede */
    :: atomic { !IN(KEEPS, m) && IS_LIVE(h) -> skip; STEP("key_live", m) };
        atomic { has_lock || !IN(locked, h) -> locked = locked | BIT(h); touched = touched | BIT(h); has_lock = 1; STEP("key_lock", m) };
        atomic {
            if
            :: IS_LIVE(h) || BUG == 2 && st[h] == PLAIN -> replaces = 1; STEP("key_replaces", m)
            :: else -> STEP("key_late", m) goto looks
            fi }
    fi;
store:
    begin_store(m, f);
    if
    :: atomic { st[m] = STORED_AS(m, f); key_holder = 1 + m;
            if
            :: replaces -> settle_as(h, SUPERSEDED); moved[h] = 1 + m
            :: else
            fi;
            ONE_LIVE;
            running = running & ~BIT(m); STEP("commit", m) }
    :: running = running & ~BIT(m)
    fi;
over:
    atomic { STEP("rollback", m) locked = (has_lock -> locked & ~BIT(h) : locked); key_new = (key_new == 1 + m -> 0 : key_new); key_lock = (key_lock == 1 + m -> 0 : key_lock) }
}

/* --- gateways ------------------------------------------------------------------------------------------------- */
#define DIES :: crashes < CRASHES && g == 0 -> crashes++; goto dies
#define BEYOND(m) (m < M && st[m] == PLAIN && DUE(m) > frontier)
#define SOME_BEYOND (BEYOND(0) || BEYOND(1) || BEYOND(2))
#define IS_BACK(b) (b < M && IN(b_back, b) && !IN(b_lock, b))
#define SOME_BACK (IS_BACK(0) || IS_BACK(1) || IS_BACK(2))
#define IS_OPEN(m) (m < M && (st[m] == OPEN || st[m] == WAITS && IN(passed, m)) && !IN(locked, m))
#define SOME_OPEN (IS_OPEN(0) || IS_OPEN(1) || IS_OPEN(2))
#define WAITS_FREE(m) (m < M && st[m] == WAITS && !IN(passed, m) && !IN(locked, m))
#define SOME_WAITS (WAITS_FREE(0) || WAITS_FREE(1) || WAITS_FREE(2))
#define LEFT(b, m) (m < M && st[m] == PLAIN && IN(b_took[b], m) && !IN(b_settled[b], m))
#define LEFT_OF(b) (LEFT(b, 0) * 1 + LEFT(b, 1) * 2 + LEFT(b, 2) * 4)
#define LEASE IN(lives, me)
#define MY_CLAIM (b_owner[b] == me && IN(b_is, b) && !IN(b_done, b))

proctype gateway(byte g) {
    byte me, from, b, mine, skips, i, s;
    bit one, doubted;           /* a row of its own, not a range; which was in doubt when it was claimed */
born:
    atomic { me = next_instance; next_instance++; table = table | BIT(me); lives = lives | BIT(me); cur[g] = me; STEP_OF("born", g) };
end_idle:
    do
    /* in sql/schema/001_14_batch.sql: claim_next */
    :: atomic { SOME_BEYOND && !gate && LEASE -> gate = 1 + g; from = frontier;
            if
            :: BEYOND(0) -> b = 0
            :: BEYOND(1) -> b = 1
            :: BEYOND(2) -> b = 2
            fi;
            STEP_OF("claim_next", b) };
#if BUG != 3            /* moves the fence after it has read */
        atomic { fence = (DUE(b) > fence -> DUE(b) : fence); STEP_OF("claim_fence", b) };
#endif
        if
        DIES
        :: skip
        fi;
        /* in sql/query/batch_claim.sql: seen as materialized. One snapshot; of an instance that was taken over nothing is claimed. */
        if
        :: d_step { IN(table, me) ->
            mine = 0; skips = 0;
            FOR_EACH(i)
                if
                :: st[i] == PLAIN && DUE(i) > from && DUE(i) <= DUE(b) ->
                    if
                    :: (BUG != 4 && IN(touched, i)) || IN(RATED, i) -> skips = skips | BIT(i)
                    :: else -> mine = mine | BIT(i)
                    fi
                :: else
                fi;
            NEXT(i);
            STEP_OF("claim_rows", b) }
        :: !IN(table, me) -> goto dies
        fi;
#if BUG == 3
        atomic { fence = (DUE(b) > fence -> DUE(b) : fence); STEP_OF("claim_fence", b) };
#endif
        if
        DIES
        :: atomic { b_is = b_is | BIT(b); b_from[b] = from; b_owner[b] = me; b_took[b] = mine;
                frontier = DUE(b); gate = 0;
                if
                :: mine == 0 -> b_done = b_done | BIT(b)
                :: else
                fi;
                STEP_OF("claim_commit", b) };
            if
            :: unclear < UNCLEAR && g == 0 -> unclear++; goto dies        /* in gateway/deliver/claimer.c: look_plain */
            :: skip
            fi
        :: !LEASE -> goto dies          /* its session was ended, or it stood still for a second in the middle */
        fi;
        goto works
    /* in sql/schema/001_14_batch.sql: claim_pass */
    :: atomic { !SOME_BEYOND && frontier < M && !gate && LEASE && ONCE(st[0] != NONE || st[1] != NONE || st[2] != NONE) -> gate = 1 + g; from = frontier; b = M - 1; STEP_OF("pass_begins", b) };
        atomic { fence = M; STEP_OF("pass_fence", b) };
        if
        DIES
        :: atomic { b_is = b_is | BIT(b); b_from[b] = from; b_done = b_done | BIT(b); frontier = M; gate = 0; STEP_OF("pass_commit", b) from = 0; b = 0 }
        fi
    /* in sql/schema/001_14_batch.sql: batch_again */
    :: atomic { SOME_BACK && LEASE && IN(table, me) ->
            if
            :: IS_BACK(0) -> b = 0
            :: IS_BACK(1) -> b = 1
            :: IS_BACK(2) -> b = 2
            fi;
            b_back = b_back & ~BIT(b); b_owner[b] = me; mine = LEFT_OF(b); STEP_OF("again", b) };
        goto works
    /* in sql/schema/001_14_batch.sql: batch_scatter. Its target has stood still for long: it can be cancelled again. */
    :: d_step { SOME_BACK && LEASE ->
            if
            :: IS_BACK(0) -> b = 0
            :: IS_BACK(1) -> b = 1
            :: IS_BACK(2) -> b = 2
            fi;
            mine = LEFT_OF(b);
            if
            :: (mine & locked) == 0 -> b_done = b_done | BIT(b); b_back = b_back & ~BIT(b)
            :: else
            fi;
            FOR_EACH(i) st[i] = (IN(mine & ~locked, i) -> OPEN : st[i]); NEXT(i);
            STEP_OF("scatter", b)
            mine = 0; b = 0 }
    /* in sql/query/claim.sql: candidate as materialized. A row that has a rate waits for a slot from then on. */
    :: atomic { SOME_OPEN && LEASE && IN(table, me) ->
            if
            :: IS_OPEN(0) -> i = 0
            :: IS_OPEN(1) -> i = 1
            :: IS_OPEN(2) -> i = 2
            fi;
            if
            :: IN(RATED, i) && !IN(passed, i) -> st[i] = WAITS; doubt = (BUG == 17 -> doubt & ~BIT(i) : doubt);       /* 17: as new */
                STEP_OF("claim_waits", i) i = 0; goto end_idle
            :: else -> st[i] = OWNED; owner[i] = me; mine = BIT(i); one = 1; doubted = IN(doubt, i); STEP_OF("claim_one", i) i = 0
            fi };
        goto works
    /* in sql/query/claim_rate.sql: turn as materialized. Nobody else takes a slot meanwhile. */
    :: atomic { SOME_WAITS && !rate_lock && LEASE && IN(table, me) -> rate_lock = (BUG == 12 -> 0 : 1 + g); s = slot_next;
            if
            :: WAITS_FREE(0) -> i = 0
            :: WAITS_FREE(1) -> i = 1
            :: WAITS_FREE(2) -> i = 2
            fi;
            STEP_OF("slot_next", i) };
        if
        DIES
        :: atomic {
            rate_lock = (rate_lock == 1 + g -> 0 : rate_lock);
            if
            :: WAITS_FREE(i) -> st[i] = OWNED; owner[i] = me; slot[i] = s; slot_next = s + 1; mine = BIT(i); one = 1; doubted = IN(doubt, i); STEP_OF("slot_taken", i) skip
            :: else -> skip; STEP_OF("slot_missed", i)
            fi;
            i = 0; s = 0 }
        fi;
        if
        :: mine -> goto works
        :: else
        fi
    /* The lease is over: another instance. in gateway/program/instance.c: drop_session */
    :: !LEASE -> goto dies
    od;

works:
    do
    :: mine == 0 -> break
    :: mine != 0 ->
        atomic {                /* the lease is asked before; confirms come in any order. in gateway/deliver/lease.c: lease_instance */
            if
            :: !LEASE -> goto dies
            :: else
            fi;
            if
            :: IN(mine, 0) -> i = 0
            :: IN(mine, 1) -> i = 1
            :: IN(mine, 2) -> i = 2
            fi };
        if
        DIES
        :: !IN(passed, i) ->    /* RabbitMQ confirms. in gateway/deliver/publisher.c: SETTLE_DELIVERED */
            atomic { deliver(i); s = 1;
                if
                :: one && IN(RATED, i) && st[i] == OWNED && owner[i] == me -> assert(!IN(slots_used, slot[i])); slots_used = slots_used | BIT(slot[i])
                :: else
                fi;
                STEP_OF("confirmed", i) };
            if
            DIES
#if BUG == 15           /* a range is put back with a message that is in flight */
            :: atomic { backs < BACKS && !one && MY_CLAIM && !IN(b_lock, b) -> backs++; b_back = b_back | BIT(b); b_owner[b] = 0; STEP_OF("back", b) mine = 0; i = 0 };
                goto rests
#endif
            /* in sql/schema/001_14_batch.sql: batch_settle */
            :: atomic { !one && MY_CLAIM -> b_settled[b] = b_settled[b] | BIT(i); STEP_OF("settle", i) }
            /* in sql/query/settle_delivered.sql: owner is not distinct from */
            :: atomic { one && st[i] == OWNED && owner[i] == me && !IN(locked, i) -> st[i] = DELIVERED; owner[i] = 0; STEP_OF("settle_one", i) }
            /* It belongs to somebody else by now. in sql/schema/001_19_history.sql: history_delivered */
            :: atomic { (one -> !(st[i] == OWNED && owner[i] == me) : !MY_CLAIM) && !IN(locked, i) ->
                    if
                    :: st[i] == OPEN || st[i] == OWNED || st[i] == WAITS -> st[i] = DELIVERED; owner[i] = 0
                    :: else
                    fi;
                    STEP_OF("settle_missed", i) }
            fi
        /* It refuses: tried again, by a row of its own. in sql/schema/001_19_settle.sql: settle_other */
        :: atomic { refusals < REFUSALS && !IN(locked, i) -> refusals++;
                if
                :: !one && MY_CLAIM && st[i] == PLAIN -> st[i] = OPEN
                :: one && st[i] == OWNED && owner[i] == me -> st[i] = OPEN; owner[i] = 0
                :: else
                fi;
                STEP_OF("refused", i) }
        /* Too late. in gateway/deliver/publisher.c: SETTLE_EXPIRED */
        :: atomic { IN(passed, i) && !IN(locked, i) ->
                if
                :: (!one && MY_CLAIM && st[i] == PLAIN) || (one && st[i] == OWNED && owner[i] == me) || BUG == 13 ->     /* 13: without a look at the owner */
                    if
                    :: doubted && BUG != 14 -> st[i] = FAILED
                    :: else -> settle_as(i, EXPIRED)
                    fi;
                    owner[i] = 0
                :: else
                fi;
                STEP_OF("expired", i) }
        /* The rest goes back with its range: nothing of it is in flight. in gateway/deliver/claim_range.c: BATCH_BACK */
        :: atomic { backs < BACKS && !one && MY_CLAIM && !IN(b_lock, b) -> backs++; b_back = b_back | BIT(b); b_owner[b] = 0; STEP_OF("back", b) mine = 0; i = 0 };
            goto rests
        fi;
        atomic { mine = mine & ~BIT(i); i = 0; s = 0 }
    od;
    if
    :: atomic { !one && MY_CLAIM && !IN(b_lock, b) ->
            assert(LEFT_OF(b) == 0);
            b_done = b_done | BIT(b); STEP_OF("done", b) }
    :: atomic { one || !MY_CLAIM }
    fi;
rests:
    skip;
    d_step { from = 0; b = 0; one = 0; doubted = 0; skips = 0; s = 0; i = 0 };
    goto end_idle;
dies:                           /* what it had not committed is rolled back; it starts again under another name */
    skip;
    d_step {
        STEP_OF("dies", g)
        lives = lives & ~BIT(me); gate = (gate == 1 + g -> 0 : gate); rate_lock = (rate_lock == 1 + g -> 0 : rate_lock);
        mine = 0; from = 0; b = 0; one = 0; doubted = 0; skips = 0; s = 0; i = 0 };
    goto born
}

/* --- what gateways do a few times a second ------------------------------------------------------------------------ */
#define RANGE_LATE(m) (m < M && st[m] == PLAIN && CLAIM_OF(m) < 3 && !IN(b_took[CLAIM_OF(m)], m))
/* in sql/schema/001_14_batch.sql: late_look. One at a time, for the row of late_mark is locked. */
proctype late_look() {
    byte newest, mine, snapshot, found, ended, m;
end_idle:
    do
    :: atomic { looked < upto || frontier > upto || (seen_running & ~running) || (late & ~locked) ->
#if BUG == 6            /* its id is older than the newest claim that it marks */
            mine = has_id; STEP("look_mark", 0) };
        atomic { newest = frontier; STEP("look_newest", 0) };
#else
            newest = frontier; STEP("look_newest", 0) };
        atomic { mine = has_id; STEP("look_mark", 0) };         /* whoever has an id now has one below ours */
#endif
#if BUG != 9            /* looks who runs after it has read */
        d_step { snapshot = running; ended = seen_running & ~running; STEP("look_running", 0) };
#endif
        /* in sql/schema/001_14_batch.sql: late_find */
        d_step {
            found = late;
            FOR_EACH(m)
                if
                :: RANGE_LATE(m) && DUE(m) > looked && DUE(m) <= upto && (BUG != 7 || IN(running, m) || !IN(touched, m)) -> found = found | BIT(m)
                :: RANGE_LATE(m) && IN(ended, m) && DUE(m) > since[m] && DUE(m) <= looked -> found = found | BIT(m)
                :: else
                fi;
            NEXT(m);
            STEP("look_finds", found) };
#if BUG == 9
        d_step { snapshot = running; ended = seen_running & ~running; STEP("look_running", 0) };
#endif
        /* in sql/schema/001_14_batch.sql: late_open. What somebody has locked is left aside. */
        d_step {
            FOR_EACH(m) found = (IN(found, m) && st[m] != PLAIN -> found & ~BIT(m) : found); NEXT(m);
            late = found & locked; found = found & ~locked; locked = locked | found; touched = touched | found; STEP("look_locks", found) };
        d_step {
            FOR_EACH(m) st[m] = (IN(found, m) -> (IN(RATED, m) && !IN(passed, m) -> WAITS : OPEN) : st[m]); NEXT(m);
            locked = locked & ~found;
            if
            :: looked < upto && BUG != 5 ->     /* nobody is remembered who stores still */
                FOR_EACH(m) since[m] = (IN(snapshot & below & ~seen_running, m) -> looked : since[m]); NEXT(m);
                seen_running = seen_running | (snapshot & below)
            :: else
            fi;
            seen_running = seen_running & ~ended;
            looked = upto;
            if
            :: newest > upto -> upto = newest; below = mine
            :: else
            fi;
            STEP("look_opens", found)
            newest = 0; mine = 0; snapshot = 0; found = 0; ended = 0 }
    od
}

#define IS_DEAD(b) (b < M && IN(b_is, b) && !IN(b_done, b) && !IN(b_back, b) && b_owner[b] && !IN(table, b_owner[b]) && ((LEFT_OF(b) & ~locked) || !LEFT_OF(b)))
#define SOME_DEAD (IS_DEAD(0) || IS_DEAD(1) || IS_DEAD(2))
#define IS_ORPHAN(m) (m < M && st[m] == OWNED && !IN(table, owner[m]) && !IN(locked, m))
#define SOME_ORPHAN (IS_ORPHAN(0) || IS_ORPHAN(1) || IS_ORPHAN(2))
proctype take_over() {
    byte b, left, i;
end_idle:
    do
    /* in sql/query/instance_reap.sql: instance_lives */
    :: atomic { table & ~lives -> table = table & lives; STEP("reap", 0) }
    /* in sql/schema/001_14_batch.sql: batch_release */
    :: atomic { SOME_DEAD -> b = (IS_DEAD(0) -> 0 : (IS_DEAD(1) -> 1 : 2)); b_lock = b_lock | BIT(b);
            left = LEFT_OF(b);          /* in sql/schema/001_14_batch.sql: batch_left */
#if BUG == 11           /* what is pending before the position is forgotten */
            i = 0;
            FOR_EACH(i) left = (IN(b_settled[b], i) -> left & ~(BIT(i + 1) - 1) : left); NEXT(i);
#endif
            STEP("release_locks", b) };
        d_step {
            b_done = ((left & locked) == 0 -> b_done | BIT(b) : b_done); b_lock = b_lock & ~BIT(b);
            FOR_EACH(i)
                if
                :: IN(left & ~locked, i) && st[i] == PLAIN -> st[i] = OPEN; doubt = (BUG == 8 -> doubt : doubt | BIT(i))      /* as if nobody had begun it */
                :: else
                fi;
            NEXT(i);
            STEP("release", b)
            left = 0; b = 0 }
    /* in sql/query/instance_release.sql: owner = null */
    :: atomic { SOME_ORPHAN -> i = (IS_ORPHAN(0) -> 0 : (IS_ORPHAN(1) -> 1 : 2));
            st[i] = OPEN; owner[i] = 0; doubt = doubt | BIT(i); STEP("orphan", i) i = 0 }
    od
}

/* What happens to them; each may, or not. */
proctype sleeper() {            /* a machine hangs, or is stopped: its lease ends, and its session. It goes on when it likes. */
    do
    :: atomic { sleeps < SLEEPS -> sleeps++; lives = lives & ~BIT(cur[0]); STEP("sleeps", cur[0]) }
    :: break
    od
}
proctype clock() {
    byte m;
    FOR_EACH(m)
        if
        :: atomic { IN(DEADLINES, m) -> passed = passed | BIT(m); STEP("passes", m) }
        :: skip
        fi;
    NEXT(m)
}

/* When nobody can go on: nothing is lost, and what users see is what happened. */
proctype judge() {
    byte m;
    timeout;
    FOR_EACH(m)
        assert(IS_FREE(m) || IN(delivered, m));
        assert(IS_FREE(m) || IS_DELIVERED(m));
        assert(st[m] != FAILED || IN(doubt, m) || IN(passed, m));
    NEXT(m)
}

init {
    byte m;
    atomic {
        FOR_EACH(m)
            if :: IN(STORED, m) -> run writer(m) :: else fi;
            if :: IN(CANCELS, m) -> run canceller(m) :: else fi;
            if :: IN(MOVES, m) -> run mover(m) :: else fi;
            if :: IN(KEYED, m) -> run keyed(m) :: else fi;
        NEXT(m);
        do :: m == G -> m = 0; break :: else -> run gateway(m); m++ od;
        run late_look();
        if :: CRASHES + SLEEPS + UNCLEAR -> run take_over() :: else fi;
        if :: SLEEPS -> run sleeper() :: else fi;
        if :: DEADLINES -> run clock() :: else fi;
        run judge()
    }
}
