"""What `postdate status` says of a gateway while RabbitMQ is away, and after its sessions in PostgreSQL have ended."""
import datetime
import json

import harness
from door import Door, port_of, with_hosts
from harness import LiveTest, free_port, wait_until


@harness.not_san
class Away(LiveTest):
    who_waits = 'timer'

    def status(self):
        out = self.p.run('status', '--json')
        return json.loads(out)

    def began(self):
        (gateway,) = [g for g in self.status()['gateways'] if g['alive']]
        return datetime.datetime.fromisoformat(gateway['started_at'].replace('Z', '+00:00'))

    def end_sessions(self):
        """All of the gateway's: it books a new instance."""
        newest = self.p.value('select max(id) from postdate.instance')
        self.p.psql('select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()')
        wait_until(lambda: self.p.value('select coalesce(max(id), 0) from postdate.instance') not in ('0', newest), 20, 'a new instance')

    def test_rabbitmq_away_while_sessions_end(self):
        p = self.p = self.place()
        door = Door(free_port(), port_of(p.amqp)).open()
        gateway = p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address))
        wait_until(lambda: self.status()['findings'] == [], 10, 'nothing to be wrong')
        began, client, inbox = self.began(), p.client(), p.consumer('q', bind='k')
        for count in range(1, 4):  # who sees first that RabbitMQ is back is a matter of chance
            door.close()
            wait_until(lambda: 'broker' in [f['name'] for f in self.status()['findings']], 15, 'the gateway to say so')
            self.assertRegex(p.cli('status')[1], r'alive, timer, RabbitMQ is unavailable, started')
            self.end_sessions()
            door.open()
            wait_until(lambda: self.status()['findings'] == [], 30, 'it to be back')
            self.assertLess(abs(self.began() - began), datetime.timedelta(seconds=1))
            client.publish('k', b'x', {'x-delay': 1})
            inbox.wait(count, 20)
        self.assertEqual(gateway.lines_with('lost the connection to PostgreSQL'), [])
        door.close()
