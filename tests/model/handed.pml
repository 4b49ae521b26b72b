/* The lane that RabbitMQ holds: store or feed, hand over, wait there, come out, relay, look up, prove, rescue.
 * docs/internals/model.md explains it, without Promela. `make model` runs it; run.py there has the bounds and the mistakes.
 *
 * One message, for in this lane each goes its own way. As in held.pml an `atomic` is one look or one commit. RabbitMQ is a place where
 * copies of the message wait, and a queue of what has come out, in which a ping parts what came before it from what comes after. */
#ifndef G
#define G 2             /* gateways, 2 at most */
#endif
#ifndef STORED_AS       /* as the intake stores it: HANDED; or SCHEDULED, for the feeder */
#define STORED_AS HANDED
#endif
#ifndef CANCELS         /* somebody tries to cancel it */
#define CANCELS 0
#endif
#ifndef LOSSES          /* how often: RabbitMQ loses a copy; has it twice; breaks the connection, or refuses, in a hand-over … */
#define LOSSES 0
#endif
#ifndef DOUBLES
#define DOUBLES 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef CRASHES         /* … a gateway dies; has no database, but goes on delivering; RabbitMQ is empty and has nothing of ours any more */
#define CRASHES 0
#endif
#ifndef AWAYS
#define AWAYS 0
#endif
#ifndef CUTS            /* the connection of a gateway is lost, which goes on */
#define CUTS 0
#endif
#ifndef EMPTIES
#define EMPTIES 0
#endif
#ifndef LAST            /* last_hop = broker: RabbitMQ delivers, and a receipt comes out */
#define LAST 0
#endif
#ifndef BUG
#define BUG 0
#endif
#define BIT(m) (1 << (m))
#define IN(mask, m) (((mask) >> (m)) & 1)

mtype = { NONE, SCHEDULED, HANDED, CLAIMED, DELIVERED, CANCELLED };
mtype st = NONE;
byte owner, handing;            /* instances; 0: nobody. CLAIMED by nobody is in doubt */
bit delivered, excuse, locked;  /* excuse: something happened after which it may come twice */

byte waiting;                   /* copies that wait in RabbitMQ */
byte front, before, after;      /* copies in the exit queue: given back by a consumer, flagged redelivered; before the ping; behind it */
byte proofs_before, proofs;     /* proofs of its delivery, or receipts, in that queue: before the ping; behind it */
bit declared = 1, gate;         /* what we declare is there; the lock `hand-over` */
mtype = { NO_PING, SENT, CAME };
mtype ping = NO_PING;
bit ping_old;                   /* a consumer went since it was sent */
bit near, late;                 /* it is due within two seconds, or is; due + grace is over */
byte consumers;                 /* gateways that RabbitMQ sends to */
byte table, lives, noted;       /* instances: their rows; those with a session and a lease; who noted a low-water mark above it since the ping came */
byte passed;                    /* gateways whose own greatest low-water mark is above it: what comes now may have been rescued */
byte noting;                    /* gateways that have found one and not noted it, with no other ping sent since */
byte book;                      /* gateways that took it and have not acknowledged it */
byte next_instance = 1, cur[2];
byte must_look, settling;       /* gateways whose connection is lost since they took it; that published it and have not settled it */
bit is_proof;                   /* what gateway 0 has taken is a proof */
byte cuts, crashes, losses, doubles, broken, aways, empties;

inline deliver() {
    assert(st != CANCELLED);                    /* never cancelled and delivered */
    assert(!delivered || excuse);               /* twice only after something that may double it */
    delivered = 1
}
#define DIES :: crashes < CRASHES && g == 0 -> crashes++; goto dies
#define gone(g) must_look = must_look & ~BIT(g); settling = settling & ~BIT(g); is_proof = (g == 0 -> 0 : is_proof)
#define COUNT(mask) (IN(mask, 0) + IN(mask, 1) + IN(mask, 2) + IN(mask, 3) + IN(mask, 4) + IN(mask, 5))

/* in sql/schema/001_40_cancel.sql: do_cancel */
proctype canceller() {
    if
    :: atomic { st == SCHEDULED && !locked -> locked = 1 };
        if
        :: atomic { assert(!delivered); st = CANCELLED; locked = 0 }
        :: locked = 0
        fi
    :: skip
    fi
}

/* Nobody can have it in hand, or deliver it yet. in gateway/handover/relay_rescue.c: relay_rescue_look */
#define MAY_RESCUE (late && (BUG == 5 || ping == CAME && (BUG == 6 || !ping_old)) && (BUG == 3 || !(table & ~noted) && (BUG == 4 || COUNT(consumers) <= COUNT(noted & table))))
#define LIVES IN(lives, me)
#define COMES_OUT (!LAST && (front || before || after && ping != SENT))
#define PROOF_COMES (proofs_before || proofs && ping != SENT)

proctype gateway(byte g) {
    byte me;
    bit redelivered, is_away;
born:
    atomic { me = next_instance; next_instance++; table = table | BIT(me); lives = lives | BIT(me); cur[g] = me; consumers = consumers | BIT(g); passed = (late -> passed | BIT(g) : passed & ~BIT(g)) };       /* who comes late has noted nothing yet */
end_idle:
    do
    /* in gateway/intake/intake.c: intake_hand_over. It is stored as handed, with a hand-over under way. */
    :: atomic { st == NONE && LIVES -> st = STORED_AS;
            if
            :: st == HANDED -> handing = me
            :: else -> goto end_idle
            fi };
        goto brings
    /* in sql/query/handing_claim.sql: noted as materialized */
    :: atomic { st == SCHEDULED && !locked && !near && LIVES && IN(table, me) && declared -> st = HANDED; handing = me };
        goto brings
    /* in sql/query/claim.sql: candidate as materialized. In doubt; or not handed over, and due; or lost by RabbitMQ. */
    :: atomic { (st == CLAIMED && owner == 0 || st == SCHEDULED && near || st == HANDED && MAY_RESCUE) && !locked && LIVES && IN(table, me) -> st = CLAIMED; owner = me };
        goto publishes

    /* It comes out. in gateway/handover/relay.c: on_delivery */
    :: atomic { COMES_OUT && IN(consumers, g) && !IN(book, g) -> book = book | BIT(g);
            if
            :: front -> front--; redelivered = 1
            :: !front && before -> before--
            :: !front && !before -> after--
            fi };
        goto relays
    /* A proof, or a receipt. in gateway/handover/relay.c: relay_take_proof */
    :: atomic { PROOF_COMES && IN(consumers, g) && !IN(book, g) -> book = book | BIT(g);
            if
            :: proofs_before -> proofs_before--
            :: else -> proofs--
            fi;
            is_proof = (g == 0 -> 1 : is_proof) };
        if
        :: atomic { crashes < CRASHES && g == 0 -> crashes++;
                proofs_before = proofs_before + (ping == SENT); proofs = proofs + (ping != SENT); ping_old = 1; book = book & ~BIT(g); gone(g); goto dies }
        :: atomic { LIVES && !locked -> st = (st == HANDED || st == CLAIMED -> DELIVERED : st); owner = 0; book = book & ~BIT(g); gone(g) }
        /* It has no database, and gives it back when it closes. */
        :: atomic { !LIVES -> proofs_before = proofs_before + (ping == SENT); proofs = proofs + (ping != SENT); ping_old = 1; book = book & ~BIT(g); gone(g); goto dies }
        fi
    /* The ping comes out, and it is noted. in sql/query/relay_note.sql: relay_pings */
    :: atomic { ping == SENT && front + before + proofs_before == 0 && IN(consumers, g) && LIVES -> ping = CAME }
    /* It sends a ping. in gateway/handover/relay_rescue.c: relay_ping_exit */
    :: atomic { late && st == HANDED && (ping == NO_PING || ping_old) && LIVES ->
            before = before + after; after = 0; proofs_before = proofs_before + proofs; proofs = 0; ping = SENT; ping_old = 0; noted = 0; noting = 0 }
    /* RabbitMQ has nothing of ours: what it held is given back, and only then anything is declared; others wait for the lock, and look again.
     * in sql/pipeline/handing.c: handing_lost */
    :: atomic { !declared && !gate && LIVES -> gate = (BUG != 7) };         /* 7: without the lock */
        atomic { st = (st == HANDED && !handing && (!near || BUG == 11) && (!declared || BUG == 7) -> SCHEDULED : st) };
        atomic { declared = 1; gate = 0 }
    /* PostgreSQL is away for this gateway alone: it goes on with what RabbitMQ gives it, and others may take it for dead. */
    :: atomic { aways < AWAYS && g == 0 && LIVES -> aways++; lives = lives & ~BIT(me); is_away = 1 }
    /* After 15 s without, it takes nothing more: what it has not delivered goes back. in gateway/handover/relay.c: steps_aside */
    :: is_away -> goto dies
    od;

/* in gateway/deliver/publish_roles.c: compose_envelope */
brings:
    if
    DIES
    :: atomic { declared -> waiting++ }
    :: atomic { broken < BROKEN -> broken++ };                  /* the connection broke: it counts as brought there, as it may be */
        if
        :: waiting++
        :: skip
        fi
    /* It refused: almost certainly it has nothing. In doubt, for its due time. in gateway/deliver/publish_roles.c: settle_refused */
    :: atomic { broken < BROKEN -> broken++; excuse = 1;
            if
            :: waiting++
            :: skip
            fi;
            if
            :: st == HANDED -> st = (BUG == 9 -> SCHEDULED : CLAIMED); handing = (handing == me -> 0 : handing)
            :: else
            fi;
            goto end_idle }
    /* It was never published: released, as before. in sql/schema/001_19_settle.sql: settle_other */
    :: atomic { !declared && st == HANDED && handing == me -> st = SCHEDULED; handing = 0; goto end_idle }
    :: atomic { !declared && !(st == HANDED && handing == me) -> goto end_idle }
    fi;
    if
    DIES
    :: atomic { handing = (handing == me -> 0 : handing) }      /* in sql/query/handing_done.sql: delete from postdate.handing */
    fi;
    goto end_idle;

/* What this gateway has claimed: in doubt, or new. */
publishes:
    if
    DIES
    :: atomic { LIVES && near -> deliver() };
        if
        :: crashes < CRASHES && g == 0 -> crashes++; excuse = 1; goto dies
        :: atomic { !locked -> st = (st == CLAIMED && owner == me -> DELIVERED : st); owner = (owner == me -> 0 : owner) }
        fi
    :: atomic { !LIVES -> goto dies }
    fi;
    goto end_idle;

/* It has one from RabbitMQ. Is it to be looked up first? in gateway/handover/relay.c: needs_look_up */
relays:
    if
    :: atomic { crashes < CRASHES && g == 0 -> crashes++; front = front + !IN(must_look, g); ping_old = 1; book = book & ~BIT(g); gone(g); goto dies }
    :: atomic { near && (!redelivered && !IN(must_look, g) || BUG == 2) && (!late || !IN(passed, g) && LIVES) -> deliver(); settling = settling | BIT(g) };
        if
        :: atomic { crashes < CRASHES && g == 0 -> crashes++; excuse = 1; front = front + !IN(must_look, g); ping_old = 1; book = book & ~BIT(g); gone(g); goto dies }
        /* in sql/query/settle_delivered.sql: settled_at is null and ((owner is null or $5::bool) and state = 'claimed' or $5::bool and state = 'handed') */
        :: atomic { LIVES && !locked -> st = (st == HANDED || st == CLAIMED -> DELIVERED : st); owner = 0; book = book & ~BIT(g); gone(g) }
        /* No database: a proof, and then it is acknowledged. in gateway/handover/relay.c: prove */
        :: atomic { !LIVES && BUG != 8 -> proofs++ };
            atomic { book = book & ~BIT(g); gone(g) }
        :: atomic { !LIVES && BUG == 8 -> book = book & ~BIT(g); gone(g) }       /* it is acknowledged without a proof */
        fi
    /* in sql/query/relay_claim.sql: candidate as materialized */
    :: atomic { ((redelivered || IN(must_look, g)) && BUG != 2 || late) && !settling && LIVES && IN(table, me) && !locked ->
            if
            :: st == HANDED -> st = CLAIMED; owner = me; book = book & ~BIT(g); gone(g); redelivered = 0; goto publishes
            :: st != HANDED -> book = book & ~BIT(g); gone(g)            /* its row says what became of it, or who has it */
            fi }
    :: atomic { !LIVES && (redelivered || late) -> front = front + !IN(must_look, g); ping_old = 1; book = book & ~BIT(g); gone(g); goto dies }    /* it waits for the database, and gives it back */
    fi;
    redelivered = 0;
    goto end_idle;

dies:
    atomic {
        lives = lives & ~BIT(me); consumers = consumers & ~BIT(g); redelivered = 0; is_away = 0;
        ping_old = (ping != NO_PING -> 1 : ping_old) };
    goto born
}

/* A gateway's low-water mark is found first, then noted; meanwhile its relay goes on. */
proctype noter(byte g) {
    byte me;
end_idle:
    do
    /* in gateway/deliver/exit_table.c: exit_table_begin_note */
    :: atomic { late && (ping == CAME || BUG == 5) && cur[g] && !IN(noted, cur[g]) && !IN(book, g) && IN(lives, cur[g]) -> me = cur[g];
            noting = noting | BIT(g); passed = (BUG == 1 -> passed : passed | BIT(g)) };          /* 1: only when it is noted */
        /* in sql/query/relay_note.sql: relay_low */
        atomic {
            if
            :: IN(noting, g) || ping == CAME && BUG == 12 -> noted = (IN(table, me) -> noted | BIT(me) : noted)      /* it counts from when it was found */
            :: else
            fi;
            noting = noting & ~BIT(g); passed = passed | BIT(g); me = 0 }
    od
}

/* What came before a dead instance's end. */
proctype take_over() {
end_idle:
    do
    /* in sql/query/instance_reap.sql: instance_lives */
    :: atomic { table & ~lives -> table = table & lives; noted = noted & table }
    /* in sql/schema/001_16_handing.sql: handing_release. RabbitMQ may have it: tried a little later than due. */
    :: atomic { handing && !IN(table, handing) && !locked -> handing = 0; excuse = 1; st = (st == HANDED -> (BUG == 10 -> SCHEDULED : CLAIMED) : st) }
    /* in sql/query/instance_release.sql: owner = null */
    :: atomic { owner && !IN(table, owner) && !locked -> owner = 0 }
    od
}

proctype rabbitmq() {
end_idle:
    do
    :: atomic { waiting -> waiting--; after++ }
    /* Its last hop: the delivery and the receipt are routed at once, in the order of the queue. in gateway/handover/relay_receipts.c: receipt */
    :: atomic { LAST && near && (before || after && ping != SENT) -> deliver();
            if
            :: before -> before--; proofs_before = proofs_before + (ping == SENT); proofs = proofs + (ping != SENT)
            :: else -> after--; proofs++
            fi }
    :: atomic { losses < LOSSES && waiting + after + before + front -> losses++;
            if
            :: waiting -> waiting--
            :: after -> after--
            :: before -> before--
            :: front -> front--
            fi }
    :: atomic { doubles < DOUBLES && waiting -> doubles++; excuse = 1; waiting++ }
    :: atomic { empties < EMPTIES && declared -> empties++; waiting = 0; front = 0; before = 0; after = 0; proofs = 0; proofs_before = 0; excuse = (delivered || book -> 1 : excuse);      /* what some gateway had in hand then may be handed over again */
           
            ping_old = (ping != NO_PING -> 1 : ping_old); must_look = must_look | book; declared = 0 }
    /* A connection is lost: what it had taken goes to others, flagged. in gateway/handover/relay.c: relay_hold */
    :: atomic { cuts < CUTS && (book & 1) && !is_proof -> cuts++; must_look = must_look | 1; front++; ping_old = (ping != NO_PING -> 1 : ping_old) }
    od
}
/* With RabbitMQ's last hop what waits longer than the grace comes beside its rescue (a limit that docs/last-hop.md names), so here it does not. */
proctype clock() {
    near = 1;
    atomic { st != NONE && !(LAST && (waiting || handing || st == SCHEDULED)) -> late = 1 }
}

proctype judge() {
    timeout;
    assert(st == DELIVERED && delivered || st == CANCELLED && !delivered);
    assert(!waiting && !front && !before && !after && !book && !proofs && !proofs_before)
}

init {
    byte m;
    atomic {
        do :: m == G -> break :: else -> run gateway(m); run noter(m); m++ od;
        run take_over(); run rabbitmq(); run clock(); run judge();
        if :: CANCELS -> run canceller() :: else fi
    }
}
