"""Several hosts in amqp.url, on one broker: what listens in front of it plays the others."""
import resource
import socket
import threading
import time

import harness
from door import Door, port_of, with_hosts
from harness import LiveTest, free_ports, wait_until


class Hosts(LiveTest):
    who_waits = 'timer'

    def setUp(self):
        self.p = self.place()
        self.port = port_of(self.p.amqp)

    def gateway(self, *hosts, **options):
        return self.p.gateway(POSTDATE_AMQP_URL=with_hosts(self.p.amqp, *hosts), **options)

    def test_connections_move_from_the_host_that_is_gone_to_the_one_that_is_there(self):
        ports = free_ports(2)
        first, second = (Door(port, self.port) for port in ports)
        first.open()
        self.addCleanup(lambda: [d.close() for d in (first, second) if d.listener.fileno() >= 0])
        g = self.gateway(first.address, second.address)
        connected = g.lines_with(f'connected to RabbitMQ at {first.address}')
        self.assertGreaterEqual(len(connected), 5, g.log())
        wait_until(lambda: len(g.lines_with(f'{second.address}.*another host of amqp.url')) == 1, 10, 'a warning')
        second.open()
        first.close()
        for name in ('intake', 'control', 'publisher'):
            g.wait_log(f'postdate {name}: moved from {first.address} to RabbitMQ at {second.address}')
        g.wait_log(f'RabbitMQ at {second.address} accepts connections again')
        self.assertEqual(len(g.lines_with('another host of amqp.url')), len(set(g.lines_with('another host of amqp.url'))))
        client = self.p.client()
        client.queue('q', bind='k')
        client.publish('k', b'after', {'x-delay': 200})
        self.assertEqual(client.wait_get('q').body, b'after')
        self.assertEqual(g.term(), 0)

    def test_what_a_network_held_back_does_not_come_after_all(self):
        """What a publisher has given up and published elsewhere, when the network is back: it is still on this machine."""
        door, count = Door(free_ports(1)[0], self.port).open(buffered=4096), 12
        self.addCleanup(door.close)
        self.addCleanup(door.go_on)
        g = self.gateway(door.address)
        client = self.p.client()
        client.queue('q', bind='k')
        self.p.psql(f"select count(postdate.schedule('k', repeat('x', 60000), due_at => now() + interval '2 s')) from generate_series(1, {count})")
        wait_until(lambda: self.p.claimed() == count, 10, 'all to be claimed')
        door.stand_still()
        wait_until(lambda: self.p.counts() == {'delivered': count}, 60, 'all to be delivered over other connections')
        self.assertEqual(client.depth('q'), count)
        door.go_on()
        time.sleep(3)
        self.assertLessEqual(client.depth('q'), count + 1)  # the first one may have gone through; four did with a FIN
        self.assertEqual(g.term(), 0)

    def test_a_host_that_never_answers_costs_little_and_only_once(self):
        """Its kernel takes the connection, and nobody ever says a word: a machine that hangs."""
        with socket.create_server(('127.0.0.1', 0), backlog=50) as silent:
            began = time.monotonic()
            # A connection finds the right one after a share of its time for each of the others; the next ones know.
            g = self.gateway(*[f'127.0.0.1:{silent.getsockname()[1]}'] * 2, f'127.0.0.1:{self.port}', wait=False)
            g.wait_ready(30)
            took = time.monotonic() - began
            self.assertLess(took, 12 * harness.slowness(), g.log())  # each of five connections: 3.4 s at most, once
            self.assertTrue(g.lines_with('cannot log in .*no answer in time; going on with another host') or took < 3, g.log())

    def test_a_host_that_hangs_up_at_once(self):
        """As a node does that is booting, or behind a load balancer without anybody."""
        with socket.create_server(('127.0.0.1', 0)) as rude:
            def hang_up():
                while True:
                    try:
                        rude.accept()[0].close()
                    except OSError:
                        return
            threading.Thread(target=hang_up, daemon=True).start()
            g = self.gateway(f'127.0.0.1:{rude.getsockname()[1]}', f'127.0.0.1:{self.port}')
            self.assertEqual(g.term(), 0)
            rude.shutdown(socket.SHUT_RDWR)

    def test_too_many_open_files(self):
        """Whose limit it is that is reached, the library does not say."""
        door = Door(free_ports(1)[0], self.port).open()
        self.addCleanup(door.close)
        g = self.gateway(door.address)
        soft, hard = resource.prlimit(g.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(g.process.pid, resource.RLIMIT_NOFILE, (3, hard))
        for pair in door.pairs:
            door.end(*pair)
        g.wait_log(f'cannot connect to RabbitMQ at {door.address}: Too many open files: raise the limit')
        self.assertFalse(g.lines_with('refused or not reachable'))
        resource.prlimit(g.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        g.wait_log('RabbitMQ is back after')
        self.assertEqual(g.term(), 0)

    def test_none_of_them(self):
        """The error names each; the gateway waits, as for a single one."""
        taken = [socket.socket(), socket.socket()]  # bound, and nobody listens: the gateway's HTTP gets neither of them
        for one in taken:
            one.bind(('127.0.0.1', 0))
            self.addCleanup(one.close)
        a, b = (one.getsockname()[1] for one in taken)
        g = self.gateway(f'127.0.0.1:{a}', f'127.0.0.1:{b}', wait=False)
        line = g.wait_log('trying again until it works')[0]
        for port in (a, b):
            self.assertIn(f'cannot connect to RabbitMQ at 127.0.0.1:{port}: refused or not reachable', line)
        self.assertEqual(g.term(), 0)

    def test_doctor_looks_at_each(self):
        dead = free_ports(1)[0]
        url = with_hosts(self.p.amqp, f'127.0.0.1:{self.port}', f'127.0.0.1:{dead}')
        code, out, err = self.p.cli('doctor', env={'POSTDATE_AMQP_URL': url})
        self.assertRegex(out, rf'(?m)^warn +broker.hosts +1 of 2 hosts of amqp.url accept no connections: cannot connect to RabbitMQ at '
                         rf'127.0.0.1:{dead}: refused', out + err)
        url = with_hosts(self.p.amqp, f'127.0.0.1:{self.port}', f'localhost:{self.port}')
        code, out, err = self.p.cli('doctor', env={'POSTDATE_AMQP_URL': url})
        self.assertRegex(out, r'(?m)^ok +broker.hosts +all 2 hosts of amqp.url accept connections')
        self.assertRegex(out, r'(?m)^ok +broker.connection .* at (127.0.0.1|localhost):')

    def test_mistakes_are_found_before_anything_connects(self):
        for url, reason in (('amqp://u:wombat@n1,n2:70000/v', "host 'n2': the port must be a number from 1 to 65535"),
                            ('amqp://u:wombat@n1,,n2/v', 'host 2 has no name'),
                            ('amqp://u:wombat@n1/v,amqp://u:wombat@n2/v', 'host1:5672,host2:5672,host3:5672/vhost')):
            code, out, err = self.p.cli('status', env={'POSTDATE_AMQP_URL': url})
            self.assertEqual(code, 78, out + err)
            self.assertIn(reason, err)
            self.assertIn('POSTDATE_AMQP_URL', err)
            self.assertNotIn('wombat', err)
