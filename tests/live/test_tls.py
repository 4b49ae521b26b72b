"""TLS to RabbitMQ and Postgres: what is let in, what is refused and in which words, and that nothing goes in clear."""
import os
import re
import socket
import subprocess
import threading
import urllib.parse

import harness
from certificates import Certificates
from harness import Stack, free_port, free_ports, now_ms, wait_until
from doctor_kit import Doctor

REASONS = {
    'expired': 'expired',
    'early': 'not valid before|not yet valid',
    'wrong_host': "for 'elsewhere.example', '10.1.2.3', not for 'localhost'|elsewhere.example.* does not match host name",
    'self_signed': 'self-signed|self signed',
    'wrong_ca': 'signed by an authority that is not trusted|unable to get local issuer',
}


class Switch:
    """A port that leads to one of several others; where connections go can change."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(('0.0.0.0', 0))
        self.port = self.listener.getsockname()[1]
        self.heard = bytearray()  # all that clients said
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            try:
                server = socket.create_connection(('127.0.0.1', self.target), 5)
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(source, sink, source is client), daemon=True).start()

    def pump(self, source, sink, listen):
        try:
            while data := source.recv(65536):
                if listen:
                    self.heard += data
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Tls(Doctor):
    """What the classes of both servers share."""

    def assert_waits(self, g, *patterns):
        """One line says why, and the gateway tries on."""
        for pattern in patterns:
            g.wait_log(pattern)
        self.assertEqual(len(g.lines_with('cannot connect|cannot log in')), 1, g.log())
        self.assertIsNone(g.process.poll())
        return g

    def deliver(self, p, **env):
        g = p.gateway(**env)
        inbox = p.consumer('q', bind='k')
        at = now_ms()
        p.client().publish('k', b'over TLS', {'x-delay': 300})
        self.assert_on_time(inbox.wait_body(b'over TLS'), at, 300)
        return g


@harness.not_san
class RabbitTls(Tls):
    """Listeners of the common broker, one for each certificate."""
    weight = 60
    vhosts = 7
    together = True

    @classmethod
    def setUpClass(cls):
        cls.certs = Certificates()
        cls.addClassCleanup(cls.certs.remove)
        names = (*Certificates.SERVERS, 'mutual')
        cls.ports = dict(zip(names, free_ports(len(names))))
        start = ', '.join(cls.listener(name, port) for name, port in cls.ports.items())
        harness.stack().rabbitmqctl('eval', f'{{ok, _}} = application:ensure_all_started(ssl), {start}, ok.')
        cls.addClassCleanup(cls.stop_listeners)

    @classmethod
    def listener(cls, name, port):
        cert = 'good' if name == 'mutual' else name
        mutual = f'{{cacertfile, "{cls.certs.pem("ca")}"}}, {{verify, verify_peer}}, {{fail_if_no_peer_cert, true}}, '
        options = (f'[{mutual if name == "mutual" else ""}{{certfile, "{cls.certs.pem(cert)}"}}, '
                   f'{{keyfile, "{cls.certs.key(cert)}"}}]')
        return f'ok = rabbit_networking:start_ssl_listener({{"127.0.0.1", {port}}}, {options}, 2)'

    @classmethod
    def stop_listeners(cls):
        ports = ', '.join(map(str, cls.ports.values()))
        harness.stack().rabbitmqctl('eval', f'[rabbit_networking:stop_tcp_listener({{"127.0.0.1", P}}) || P <- [{ports}]], ok.')

    def url(self, p, name, host='localhost', port=None):
        parts = urllib.parse.urlsplit(p.amqp)
        netloc = f'{parts.username}:{parts.password}@{host}:{port or self.ports[name]}'
        return urllib.parse.urlunsplit(parts._replace(scheme='amqps', netloc=netloc))

    def env(self, p, name, host='localhost', port=None, ca='ca', client=None):
        env = {'POSTDATE_AMQP_URL': self.url(p, name, host, port), 'POSTDATE_AMQP_CA_FILE': self.certs.pem(ca) if ca else None}
        if client:
            env.update(POSTDATE_AMQP_CERT_FILE=self.certs.pem(client), POSTDATE_AMQP_KEY_FILE=self.certs.key(client))
        return env

    def test_by_name_and_by_address_over_tls(self):
        p = self.place()
        wire = Switch(self.ports['good'])
        self.addCleanup(wire.close)
        self.deliver(p, **self.env(p, 'good', port=wire.port))
        self.assertNotIn(b'guest', wire.heard)
        self.assertNotIn(b'postdate.intake', wire.heard)
        for host in ('localhost', '127.0.0.1'):
            found = self.doctor(p, **self.env(p, 'good', host))
            self.assert_finding(found, 'broker.connection', 'ok')
            self.assert_finding(found, 'broker.tls', 'ok', 'the certificate is checked')

    def test_refused_certificates(self):
        p = self.place()
        for name, reason in REASONS.items():
            with self.subTest(name):
                found = self.doctor(p, **self.env(p, name))
                self.assert_finding(found, 'broker.connection', 'fail', 'cannot connect: RabbitMQ at localhost:')
                self.assertRegex(found['broker.connection'][0]['detail'], reason)
        with self.subTest('the system does not know this authority'):
            found = self.doctor(p, **self.env(p, 'good', ca=None))
            self.assert_finding(found, 'broker.connection', 'fail', 'authority that is not trusted')
        with self.subTest('an address that the certificate has not'):
            found = self.doctor(p, **self.env(p, 'good', host='127.0.0.2', port=self.switch_to('good')))
            self.assert_finding(found, 'broker.connection', 'fail', "'localhost', '127.0.0.1', '0.0.0.0', not for '127.0.0.2'")

    def test_each_of_several_hosts_is_checked_against_its_own_name(self):
        """Both lead to the same broker, and its certificate has one of the names."""
        p = self.place()
        wrong, right = f'127.0.0.2:{self.switch_to("good")}', f'localhost:{self.ports["good"]}'
        env = self.env(p, 'good')
        env['POSTDATE_AMQP_URL'] = env['POSTDATE_AMQP_URL'].replace(right, f'{wrong},{right}')
        g = self.deliver(p, **env)
        self.assertGreaterEqual(len(g.lines_with(f'connected to RabbitMQ at {right}')), 5, g.log())
        self.assertEqual(g.lines_with(f'connected to RabbitMQ at {wrong}'), [])
        found = self.doctor(p, **env)
        self.assert_finding(found, 'broker.connection', 'ok')
        self.assert_finding(found, 'broker.hosts', 'warn', f"1 of 2 hosts of amqp.url accept no connections: cannot connect: RabbitMQ at {wrong}")
        self.assert_finding(found, 'broker.hosts', 'warn', "not for '127.0.0.2'")

    def switch_to(self, name):
        wire = Switch(self.ports[name])
        self.addCleanup(wire.close)
        return wire.port

    def test_files_that_are_wrong(self):
        p = self.place()
        for env, text in (({'POSTDATE_AMQP_CA_FILE': '/nowhere/ca.pem'}, "amqp.ca_file: cannot read '/nowhere/ca.pem'"),
                          ({'POSTDATE_AMQP_CA_FILE': '/etc/passwd'}, 'contains no PEM certificates'),
                          ({'POSTDATE_AMQP_CERT_FILE': self.certs.pem('client'),
                            'POSTDATE_AMQP_KEY_FILE': self.certs.key('wrong_client')}, 'not a PEM certificate with its key')):
            with self.subTest(text):
                g = p.gateway(wait=False, **dict(self.env(p, 'good'), **env))
                self.assertEqual(g.wait(), 78, g.log())
                self.assertEqual(len(g.lines_with(re.escape(text))), 1, g.log())

    def test_a_certificate_that_is_renewed_is_found(self):
        """A gateway waits for it, as for a server that is away, and reads its own files again."""
        p = self.place()
        wire = Switch(self.ports['expired'])
        self.addCleanup(wire.close)
        g = p.gateway(wait=False, **self.env(p, 'good', port=wire.port))
        self.assert_waits(g, 'its certificate expired on 2020-02-02 00:00 UTC: renew it')
        self.assertNotIn(b'guest', wire.heard)
        wire.target = self.ports['good']
        g.wait_ready()
        self.assertEqual(g.term(), 0)

    def test_a_client_certificate_is_asked_for(self):
        p = self.place()
        self.assert_waits(p.gateway(wait=False, **self.env(p, 'mutual')), 'requires? a client certificate.*amqp.cert_file')
        self.assert_waits(p.gateway(wait=False, **self.env(p, 'mutual', client='wrong_client')), 'rejects? our client certificate')
        self.deliver(p, **self.env(p, 'mutual', client='client'))

    def test_no_way_back_to_plain_text(self):
        p = self.place(migrate=False)
        plain = Switch(urllib.parse.urlsplit(p.amqp).port)
        self.addCleanup(plain.close)
        found = self.doctor(p, **self.env(p, 'good', port=plain.port))
        self.assert_finding(found, 'broker.connection', 'fail', 'does not speak TLS', 'openssl s_client')
        self.assertEqual(plain.heard[:1], b'\x16')  # a TLS handshake, and nothing else
        self.assertNotIn(b'guest', plain.heard)
        with self.subTest('plain AMQP to the TLS port'):
            url = self.url(p, 'good').replace('amqps:', 'amqp:')
            self.assert_finding(self.doctor(p, POSTDATE_AMQP_URL=url), 'broker.connection', 'fail', '', 'amqps://')
        with self.subTest('plain AMQP to another machine'):
            url = self.url(p, 'good', '0.0.0.0', plain.port).replace('amqps:', 'amqp:')  # no loopback address, yet here
            self.assert_finding(self.doctor(p, POSTDATE_AMQP_URL=url), 'broker.tls', 'warn', 'unencrypted', 'amqps://')


class TlsPostgres(Stack):
    """A Postgres of one's own with TLS, beside the common RabbitMQ. Its logins over TCP are `plain` (a password) and
    `mutual` (a password and a client certificate)."""

    @property
    def amqp(self):
        return harness.stack().amqp

    def rabbitmqctl(self, *args, **options):
        return harness.stack().rabbitmqctl(*args, **options)

    def start(self, certs):
        self.port = free_port()
        os.environ['STACK_POSTGRES_PORT'] = str(self.port)
        try:
            self.command('start-postgres')
            self.load()
            data = self.psql('show data_directory')[0][0]
            certs.give_keys_to(os.stat(data).st_uid)
            self.psql("create role plain login password 'hunter2-plain'; create role mutual login password 'hunter2-mutual'; "
                      "grant postdate to plain, mutual")
            with open(os.path.join(data, 'pg_hba.conf'), 'w', encoding='utf-8') as f:
                f.write('local all all trust\nhostssl all plain 127.0.0.1/32 scram-sha-256\n'
                        'hostssl all mutual 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n'
                        'hostnossl all open 127.0.0.1/32 scram-sha-256\n')
            for name, value in (('listen_addresses', '127.0.0.1'), ('ssl', 'on'), ('ssl_ca_file', certs.pem('ca')),
                                ('ssl_cert_file', certs.pem('good')), ('ssl_key_file', certs.key('good'))):
                self.psql(f"alter system set {name} = '{value}'")
            self.command('stop-postgres')
            self.command('start-postgres')
        finally:
            del os.environ['STACK_POSTGRES_PORT']
        self.vhosts = harness.stack().vhosts
        return self.load()

    def show(self, certs, name):
        """The certificate that new connections get."""
        self.psql(f"alter system set ssl_cert_file = '{certs.pem(name)}'")
        self.psql(f"alter system set ssl_key_file = '{certs.key(name)}'")
        self.psql('select pg_reload_conf()')


class TlsPlaces(Tls):
    """Tests with a Postgres like that."""
    together = True

    @classmethod
    def setUpClass(cls):
        cls.certs = Certificates()
        cls.addClassCleanup(cls.certs.remove)
        cls.servers = TlsPostgres.own(cls.addClassCleanup, cls.__name__.lower())
        cls.servers.start(cls.certs)

    def place(self, **options):
        p = harness.Place(self.servers, **options)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        return p

    def url(self, p, role='plain', host='localhost', port=None, **options):
        options = {'sslmode': 'verify-full', 'sslrootcert': self.certs.pem('ca'), **options}
        return (f'postgresql://{role}:hunter2-{role}@{host}:{port or self.servers.port}/{p.database}?' +
                urllib.parse.urlencode({k: v for k, v in options.items() if v}))


@harness.not_san
class PostgresTls(TlsPlaces):
    weight = 55
    vhosts = 5

    def show(self, name):
        self.servers.show(self.certs, name)
        self.addCleanup(self.servers.show, self.certs, 'good')

    def test_verified(self):
        p = self.place()
        wire = Switch(self.servers.port)
        self.addCleanup(wire.close)
        self.deliver(p, POSTDATE_POSTGRES_URL=self.url(p, port=wire.port))
        self.assertNotIn(b'postdate startup', wire.heard)
        found = self.doctor(p, POSTDATE_POSTGRES_URL=self.url(p, host='0.0.0.0', port=wire.port))  # no loopback address
        self.assert_finding(found, 'database.tls', 'ok', 'the certificate is checked')
        self.assert_finding(self.doctor(p), 'database.tls', 'ok', 'does not leave this machine')

    def test_refused_certificates(self):
        p = self.place()
        for name, reason in REASONS.items():
            with self.subTest(name):
                self.show(name)
                wait_until(lambda name=name: self.shown_is(name), 10, 'Postgres to show it')
                rc, out, err = p.cli('list', env={'POSTDATE_POSTGRES_URL': self.url(p)})
                self.assertEqual((rc, out), (69, ''), err)
                self.assertRegex(err, reason)
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertNotIn('hunter2', err)

    def shown_is(self, name):
        """Is that the certificate which Postgres shows now?"""
        with open(self.certs.pem(name), encoding='ascii') as f:
            want = f.read()
        shown = run_openssl_client(self.servers.port)
        return want.strip() in shown

    def test_a_certificate_that_is_renewed_is_found(self):
        p = self.place()
        self.show('expired')
        wait_until(lambda: self.shown_is('expired'), 10, 'Postgres to show it')
        g = p.gateway(wait=False, POSTDATE_POSTGRES_URL=self.url(p))
        self.assert_waits(g, 'certificate verify failed.*expired')
        self.servers.show(self.certs, 'good')
        g.wait_ready()
        self.assertEqual(g.term(), 0)

    def test_a_client_certificate_is_asked_for(self):
        p = self.place()
        rc, _, err = p.cli('list', env={'POSTDATE_POSTGRES_URL': self.url(p, 'mutual')})
        self.assertEqual(rc, 77, err)
        self.assertIn('requires a valid client certificate', err)
        wrong = self.url(p, 'mutual', sslcert=self.certs.pem('wrong_client'), sslkey=self.certs.key('wrong_client'))
        rc, _, err = p.cli('list', env={'POSTDATE_POSTGRES_URL': wrong})
        self.assertIn(rc, (69, 77), err)
        self.assertRegex(err, 'unknown ca|certificate')
        right = self.url(p, 'mutual', sslcert=self.certs.pem('client'), sslkey=self.certs.key('client'))
        self.assertEqual(p.cli('list', env={'POSTDATE_POSTGRES_URL': right})[0], 0)

    def test_what_is_not_verified_is_told(self):
        p = self.place()
        wire = Switch(self.servers.port)
        self.addCleanup(wire.close)
        url = self.url(p, host='0.0.0.0', port=wire.port, sslmode='require', sslrootcert=None)
        g = p.gateway(POSTDATE_POSTGRES_URL=url)
        self.assertEqual(len(g.lines_with('warn.*postgres.url: encrypted, but .* not verified')), 1, g.log())
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.tls', 'warn', 'not verified', 'verify-full')
        with self.subTest('without TLS'):
            self.servers.psql("drop role if exists open; create role open login password 'hunter2-open'; grant postdate to open")
            url = self.url(p, 'open', host='0.0.0.0', port=wire.port, sslmode='disable', sslrootcert=None)
            self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.tls', 'warn', 'unencrypted', 'verify-full')
        with self.subTest('a server without TLS gets nothing'):
            silent = Switch(urllib.parse.urlsplit(p.amqp).port)  # RabbitMQ hangs up
            self.addCleanup(silent.close)
            rc, _, err = p.cli('list', env={'POSTDATE_POSTGRES_URL': self.url(p, port=silent.port)})
            self.assertEqual(rc, 69, err)
            self.assertNotIn(b'plain', silent.heard)


def run_openssl_client(port):
    done = subprocess.run(['openssl', 's_client', '-starttls', 'postgres', '-connect', f'127.0.0.1:{port}', '-showcerts'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=20)
    return done.stdout.decode(errors='replace')
