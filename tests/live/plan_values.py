"""What the statements of sql/query are asked with over the database of plan_kit.py, as expressions of SQL, and what they may read."""
NOW = "now() + interval '500 ms'"
LONG_AGO = "timestamptz '1970-01-01 00:00+00'"
DAY, DAY_END = ("postdate.id_floor(date_trunc('day', now(), 'UTC') - interval '1 day')", "postdate.id_floor(date_trunc('day', now(), 'UTC') + interval '3 days')")  # plan_kit.ONE_PARTITION
PARTITION = "to_char(now() at time zone 'UTC' - interval '1 day', '\"message_\"YYYYMM')"
BEGIN, END = "postdate.id_floor(postdate.partition_oldest())", "postdate.id_floor(now() + interval '2 days')"
NO_DAYS = "'{}'::timestamptz[]"
WORDS, TOP = "null", '100000'


def ids(condition, count=200):
    return f'array(select m.id from postdate.message m where {condition} order by m.id limit {count})'


def one(condition):
    return f'({ids(condition, 1)})[1]'


OWNED, PLAIN, HANDED = ids('m.owner = 1'), ids('m.id > postdate.id_ceiling(now()) and m.next_at is null'), ids("m.state = 'handed' and m.settled_at is null")
DELIVERED = one('m.next_at is null')
OPEN = "array(select b.id from postdate.batch b where not b.done and b.owner = 1 order by b.id limit 5)"
DEAD = '(select l.id from postdate.lineage l where l.died_at is not null order by l.id limit 1)'
DEAD_QUEUE = '(select l.queue from postdate.lineage l where l.died_at is not null order by l.id limit 1)'
A_KEY = "(select k.key from postdate.key k where k.exchange = 'e' order by k.due desc limit 1)"
IMPORTED = 'array(select i.id from postdate.import i order by i.id limit 200)'


def texts(of, count=200):
    return f"array(select {of} from generate_series(1, {count}))"


# Where a name is missing, its parameters are DEFAULTS.
DEFAULTS = {'text': "'x'", 'int': '1', 'int4': '1', 'integer': '1', 'bigint': '1000', 'int8': '1000', 'bool': 'false', 'boolean': 'false', 'float8': '1',
            'timestamptz': 'now()', 'uuid': DELIVERED, 'uuid[]': OWNED, 'text[]': "'{e}'", 'int[]': "'{1}'", 'bigint[]': "'{1000}'", 'int8[]': "'{1000}'",
            'timestamptz[]': NO_DAYS, 'bytea': "''", 'bytea[]': "'{x}'"}
VALUES = {
    'batch_again': ['1', NO_DAYS, NO_DAYS, '500'],
    'batch_read': ["(select b.from_id from postdate.batch b where not b.done order by b.to_id limit 1)", "(select b.to_id from postdate.batch b where not b.done order by b.to_id limit 1)",
                   '(select b.id from postdate.batch b where not b.done order by b.to_id limit 1)', 'null'],
    'batch_scatter': [NO_DAYS, NO_DAYS, '500'],
    'batch_claim': ['(select to_id from postdate.frontier)', "postdate.id_ceiling(now() + interval '100 s')", '1'],
    'history_delivered': [PLAIN],
    'history_store': ["array(select postdate.id_make(now() + interval '1 hour') from generate_series(1, 200))", texts("'e'"), texts("'k'"), texts("'\\x0000'::bytea"), texts("''::bytea"), '1000'],
    'history_note': ['null', 'null', 'null', 'null', '1000'],
    'batch_next': [NOW, '1000', '1000000', NO_DAYS, NO_DAYS],
    'batch_release': ['null', '500', NO_DAYS, NO_DAYS],
    'batch_settle': [OPEN, "array(select b.to_id from postdate.batch b where not b.done and b.owner = 1 order by b.id limit 5)", "'{1,1,1,1,1}'", '1', "'{}'", "'{}'",
                     "array(select b.claimed_at from postdate.batch b where not b.done and b.owner = 1 order by b.id limit 5)"],
    'bury_find': [DAY, DAY_END, "now() - interval '1 hour'"],
    'bury_write': [DAY, DAY_END, ids("m.state = 'failed'"), "array(select m.due from postdate.message m where m.state = 'failed' order by m.id limit 200)", texts("''::bytea")],
    'claim': [NOW, "now() - interval '2 s'", BEGIN, '1000', '1000000', '1', END, "now() - interval '10 s'"],
    'claim_handed_count': [BEGIN, END, '200000'],
    'claim_handover_waiting': ["now() + interval '26 hours'", "now() + interval '2 s'", 'now()', '1000', BEGIN, END],
    'claim_once_left': ['now()', 'now()', '1000', END, END],
    'claim_rate': ['1000', '1000000', '1', BEGIN, END, 'false', '100', '1'],
    'claim_rate_free': ['1', BEGIN, END],
    'claim_rate_turns': [BEGIN, END, 'true', '100'],
    'dead_attempts': [DEAD, DEAD_QUEUE],
    'dead_bulk': ['null', 'null', "''", 'null', 'null', 'null', 'null', 'null', 'null', 'null', '100', "'drop'", 'null', 'null'],
    'dead_groups': ['null', 'null', 'null', 'null', 'null', '10000', '100'],
    'dead_list': ['null', 'null', "''", 'null', 'null', 'null', 'null', 'null', 'null', 'null', '100'],
    'dead_queues': [DEAD, 'null', 'null'],
    'dead_show': [DEAD, DEAD_QUEUE],
    'forecast_count': ["'all'", '1', '10000'],
    'forecast_minutes': ['now()', "now() + interval '1 day'", 'null', "'{}'", "'{}'"],
    'forecast_read': ['3600', 'now()', "now() + interval '1 day'", '3600000', 'null'],
    'handing_claim': ["now() + interval '26 hours'", "now() + interval '2 s'", BEGIN, '1000', '1000000', '1', END, '5000'],
    'handing_done': ["array(select h.id from postdate.handing h limit 5)"],
    'handing_store': ['gen_random_uuid()', '1', HANDED],
    'idempotency_find': [texts("''"), "array(select 'i' || i from generate_series(1, 200) i)"],
    'idempotency_finish': [texts("''"), 'array(select \'new \' || i from generate_series(1, 200) i)', texts("'x'::bytea"), texts('201'), texts("'x'::bytea")],
    'import_asleep': ["'n'", '1000', "'r'"],
    'import_awake': [IMPORTED, IMPORTED],
    'import_drop': ["'n'", "'r'", IMPORTED],
    'import_forget_some': ["'n'", "'r'", IMPORTED],
    'import_has_proof': ["'n'"],
    'import_known': [IMPORTED],
    'import_lock': [IMPORTED, PLAIN],
    'import_proof': ["'n'", "'00000000-0000-0000-0000-000000000000'", '1000'],
    'import_read': [IMPORTED],
    'import_verify': [PLAIN, "array(select m.due from postdate.message m where m.id > postdate.id_ceiling(now()) and m.next_at is null order by m.id limit 200)"],
    'instance_release': [OWNED, BEGIN, END, '1'],
    'instance_release_lock': [BEGIN, END, '500', 'null'],
    'lineage_read': ['array(select l.id from postdate.lineage l order by l.id limit 200)', 'array(select l.queue from postdate.lineage l order by l.id limit 200)', OWNED, 'now()'],
    'lineage_write': [PLAIN, texts("'q'"), texts('1'), PLAIN, texts('1000::bigint'), texts("'e'"), texts("'k'"), texts("'rejected'"), texts("'x'::bytea"), texts("''::bytea"),
                      texts("''::bytea"), PLAIN, texts('null::bigint')],
    'list_bound': [DAY, DAY_END, DAY, '1000'],
    'list_keys_named': [A_KEY, 'null', '100'],
    'list_records': [DAY, DAY_END, DAY, 'null', 'null', 'null', '100', 'null', 'null', DAY_END, 'false'],
    'list_newest': [DAY, DAY_END, DAY_END, 'null', 'null', 'null', '100', 'null', 'null', DAY, 'false', 'false'],
    'list_newest_bound': [DAY, DAY_END, DAY_END, '1000'],
    'list_retrying': [DAY, DAY_END, DAY, 'null', 'null', 'null', '100', 'null', 'null', DAY_END, 'false'],
    'list_retrying_bound': [DAY, DAY_END, DAY, '1000'],
    'list_waiting_first': [DAY, DAY_END],
    'lookup_by_id': [DELIVERED, 'null'],
    'operate_bulk': [DAY, DAY_END, one('m.id > postdate.id_ceiling(now())'), "'{scheduled}'", 'null', 'null', '100', 'null', 'null', 'extract(epoch from now())::bigint * 1000000', "'cancel'", '0', 'null', 'false'],
    'operate_cancel': [one("m.id > postdate.id_ceiling(now() + interval '1 minute') and m.next_at is null"), 'null'],
    'operate_cancel_key': ["'e'", A_KEY, 'null'],
    'operate_fail': [one("m.state = 'claimed' and m.owner is null"), 'null', 'null'],
    'operate_find_key': ["'e'", A_KEY, 'null'],
    'operate_former_ids': ['(select id from postdate.moved where first_id = id limit 1)'],
    'operate_moved_latest': ['(select id from postdate.moved where first_id = id limit 1)'],
    'operate_rate': [one('m.rate = 1')],
    'operate_reschedule': [one("m.id > postdate.id_ceiling(now() + interval '1 minute') and m.next_at is null"), 'null', "now() + interval '1 hour'", 'null'],
    'operate_retry': [one("m.state = 'failed'"), 'null'],
    'partition_divide_page': [BEGIN, END, '1000', '1000000'],
    'partition_filled': ["'message_'", "'message_a'", '100', BEGIN.replace('postdate.id_floor', ''), "now() + interval '2 days'"],
    'partition_has': ["'message'"],
    'partition_list': ['null'],
    'partition_make': ['3', '0'],  # they are counted; in the last days of a month one would be made, and overlap plan_kit's
    'partition_needed': [PARTITION, '1000', '1000', '1000'],
    'partition_parent': [PARTITION],
    'partition_size': [PARTITION],
    'prune_keys': ["now()", "now() + interval '4000 s'", '3600000', '1000', DAY, DAY_END],
    'rate_ask': ["'list'", 'null', 'null', 'null', "''", 'null', 'false'],
    'recur_apply': ["'{\"schedules\": {}}'", 'true', "'none'", 'null'],
    'recur_ask': ["'get'", "'r1'", 'null', 'null', 'null', 'null', 'false'],
    'recur_clock': ['1200000'],
    'recur_look': ['10'],
    'relay_claim': [HANDED, BEGIN, END, '1', '1000000', 'true'],
    'relay_note': ['1', 'now()', "'{}'", "'{}'", 'null', 'null', 'now()'],
    'relay_look': [HANDED, BEGIN, END, '1'],
    'retry_policy_ask': ["'list'", 'null', 'null', 'null', "''", 'null', 'false'],
    'settings_record': ["'e'", "'{*}'", '259200000', '1000000', '100000', '3600000', '500', 'null', "''"],
    'settle_delivered': [OWNED, BEGIN, END, '1', 'true'],
    'settle_lock': [OWNED, BEGIN, END, '1', 'true', 'true', 'false'],
    'settle_other': [OWNED, BEGIN, END, '1', texts("'failed'"), texts('now()'), texts("'no'"), texts('1'), texts("''"), 'true', 'false'],
    'slo_fold': ['7776000000'],
    'slo_read': ["'{3600000,86400000}'"],
    'status_count': [DAY, DAY_END] + ['1000'] * 7,
    'status_delivered': [DAY, DAY_END, '1000', END],
    'status_lateness': ["postdate.id_floor(now() - interval '1 minute')", 'postdate.id_floor(now())', '1000'],
    'status_scheduled': [DAY, DAY_END, '1000'],
    'status_waiting': [DAY, DAY_END, '1000', '10000'],
    'store_batch_prune': ['1000', '7200000'],
    'store_dedupe_candidates': ["array(select 'm' || i from generate_series(1, 200) i)", 'null'],
    'store_dedupe_same': [DELIVERED, "'e'", "'k'", 'null', "''", "''"],
    'store_key_decide': ["'e'", A_KEY, 'now()', 'gen_random_uuid()', "'replace'", '3600000'],
    'store_keys_decide': [texts("'e'"), "array(select k.key from postdate.key k where k.exchange = 'e' order by k.due desc limit 200)", texts('now()'),
                          'array(select gen_random_uuid() from generate_series(1, 200))', texts("'replace'"), '3600000'],
    'store_key_insert': [texts("'e'"), "array(select 'key ' || i from generate_series(1, 200) i)", texts('now()'), PLAIN],
    'store_moved_note': ['gen_random_uuid()', 'gen_random_uuid()'],
    'token_ask': ["'list'", "''", "'{}'", 'null', "''", 'null', 'false'],
    'store_key_move': ["'e'", A_KEY, 'now()', 'gen_random_uuid()'],
}

# Functions that no statement above leads to, or not with many rows: as {name: statement}. Those of callers run with the server's own settings.
SCHEDULES = "array(select x.id from postdate.recur x where x.message is not null order by x.id limit 1000)"
CARRIERS = "array(select x.message from postdate.recur x where x.message is not null order by x.id limit 1000)"
FUNCTIONS = {
    'recur_claim': f'select postdate.recur_claim({SCHEDULES}, {CARRIERS})',
    'recur_claim_each': f'select postdate.recur_claim_each({SCHEDULES}, {CARRIERS})',
    'schedule': "select postdate.schedule('k', 'x', delay => '1 hour', key => 'new') from generate_series(1, 10)",
    'cancel_key': f"select postdate.cancel_key({A_KEY}, exchange => 'e')",
    'message': f'select * from postdate.message({DELIVERED})',
    'rates': 'select * from postdate.rates',
    'batch_release_of_one': "select postdate.batch_release(1, '{}', '{}', 500)",
    'handing_release': "select postdate.handing_release(null, '{}', '{}')",
    'late_look': "select postdate.late_look('{}', '{}')",
}
