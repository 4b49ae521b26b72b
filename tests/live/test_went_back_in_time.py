"""PostgreSQL is recovered to a point in time, from a base backup and archived log, beside a RabbitMQ that holds messages."""
import json
import os
import re
import shutil
import signal
import time

import harness
from handover_kit import held_by_broker, metric
from harness import wait_until
from standby_kit import StandbyTest

WINDOW_S = 26 * 3600  # the default of handover.window
DELAY_S = 60          # after that: when a day has passed, RabbitMQ holds it so long


@harness.not_san  # the tmpfs of each server is large
class RecoveredToATime(StandbyTest):
    """docs/operations.md, Restore, step by step, with settings as they are by default."""
    weight = 5
    time_limit_s = 400

    def keep_log(self, pg):
        """The primary archives its log; the folder."""
        archive = os.path.join(os.path.dirname(pg.primary.directory), 'archive')
        os.mkdir(archive, 0o755)
        if os.geteuid() == 0:
            shutil.chown(archive, 'postgres', 'postgres')
        pg.primary.set(archive_mode='on', archive_command=f'cp %p {archive}/%f')
        pg.primary.end(signal.SIGINT)
        pg.primary.start()
        return archive

    def recover(self, pg, archive, target):
        """The other server, which has the base backup, as it was at that time. Nothing is left of the one that was."""
        last = pg.primary.psql('select pg_walfile_name(pg_switch_wal())')[0][0]
        wait_until(lambda: os.path.exists(os.path.join(archive, last)), 60, 'the log to be archived')
        pg.primary.end(signal.SIGKILL)
        pg.primary.remove()
        node = pg.spare
        node.configure()
        node.confine_notifications()
        with open(os.path.join(node.data, 'postgresql.auto.conf'), 'a', encoding='utf-8') as f:
            f.write(f"archive_mode = off\nrestore_command = 'cp {archive}/%f %p'\nrecovery_target_time = '{target}'\nrecovery_target_action = 'promote'\n")
        with open(os.path.join(node.data, 'recovery.signal'), 'w', encoding='utf-8'):
            pass
        node.start()
        wait_until(lambda: node.psql('select pg_is_in_recovery()') == [['f']], 60, 'the recovery to end')
        pg.primary, pg.spare = node, pg.primary
        self.assertEqual(node.psql('select timeline_id from pg_control_checkpoint()'), [['2']])

    def publish(self, client, name, count, delay_s):
        for i in range(count):
            client.publish('k', f'{name} {i}', {'x-delay': delay_s * 1000})

    def ids(self, p, name):
        return [row[0] for row in p.psql(f"select id from postdate.message_now where convert_from(body, 'UTF8') like '{name} %' order by 1")]

    def test_the_procedure(self):
        pg = self.pair()
        archive = self.keep_log(pg)
        p = self.place_on(pg, transport='ttl')
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        c = p.client()
        self.publish(c, 'before', 20, 0)
        inbox.wait(20)
        wait_until(lambda: p.counts() == {'delivered': 20}, 30, 'the first ones to be settled')
        pg.spare.tool('pg_basebackup', '-D', pg.spare.data, '-c', 'fast', '--no-sync', '-h', pg.primary.run, '-U', 'postgres')
        self.publish(c, 'cancelled', 60, WINDOW_S + DELAY_S)
        self.publish(c, 'kept', 40, WINDOW_S + DELAY_S)
        self.publish(c, 'handed', 20, 20)
        wait_until(lambda: p.counts() == {'delivered': 20, 'scheduled': 100, 'handed': 20}, 30, 'all to be stored')
        time.sleep(1.5)
        target = p.value('select clock_timestamp()')
        inbox.wait(40, 60)
        wait_until(lambda: p.counts() == {'delivered': 40, 'scheduled': 100}, 30, 'those to be settled, which the recovery forgets')
        self.assertEqual(g.term(), 0)
        pg.clocks.set_time(WINDOW_S)
        g = p.gateway()
        self.publish(c, 'later', 40, DELAY_S)
        wait_until(lambda: p.counts() == {'delivered': 40, 'handed': 140}, 40, 'all to be handed over')
        time.sleep(1.5)  # RabbitMQ is told of a later point than the recovered database has

        # 1
        self.assertEqual(g.term(), 0)
        p.asker.close()
        self.recover(pg, archive, target)
        self.assertEqual(p.counts(), {'delivered': 20, 'scheduled': 100, 'handed': 20})
        held = held_by_broker(p, 'ttl')
        # 3
        self.assertEqual(p.run('list', '--state', 'scheduled', '--due-before', 'now', '--json'), '')
        code, out, err = p.cli('list', '--state', 'handed', '--due-before', 'now', '--json')
        handed = self.ids(p, 'handed')
        self.assertEqual((code, sorted(re.findall(r'"id":\s?"([^"]+)"', out))), (0, handed), err)
        code, out, err = p.cli('cancel', handed[0])
        self.assertIn('too late', out + err)
        # 4
        code, out, err = p.cli('cancel', *self.ids(p, 'cancelled'))
        self.assertEqual(code, 0, out + err)
        self.assertEqual(p.counts(), {'delivered': 20, 'scheduled': 40, 'cancelled': 60, 'handed': 20})
        # 5
        g = p.gateway()
        self.assertTrue(g.lines_with('the database went back'), g.log())
        wait_until(lambda: p.counts() == {'cancelled': 60, 'delivered': 120}, 120, f'all to be settled, not {p.counts()}')
        time.sleep(2)  # what comes twice comes now
        came = [m.body.decode() for m in inbox.all()]
        print(f'note recovered to a time: RabbitMQ held {held}; {len(came)} came, {len(came) - len(set(came))} of them again', flush=True)
        each = {'before': 20, 'kept': 40, 'later': 40, 'handed': 20}
        self.assertEqual(sorted(set(came)), sorted(f'{name} {i}' for name, n in each.items() for i in range(n)))
        again = sorted(x for x in set(came) if came.count(x) > 1)
        self.assertEqual(again, sorted(f'handed {i}' for i in range(20)), 'what was delivered after that time, and accepted before it')
        self.assertEqual(len(came), 140)
        self.assertEqual(metric(g, 'postdate_messages_stored_again_total'), 40)
        checks = {x['check']: x for x in json.loads(p.cli('doctor', '--json')[1])['checks']}
        self.assertEqual(checks['database.history']['status'], 'warn')
        self.assertTrue(re.search('went back', p.cli('status')[1]))
        self.assertEqual(g.term(), 0)
