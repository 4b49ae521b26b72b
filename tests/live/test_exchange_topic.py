"""How Postdate's exchange type matches the patterns of topic exchanges: as their definition says, and as RabbitMQ's own topic exchange does."""
import os
import random
import re
import subprocess
import tempfile

import harness
from exchange_kit import TypeServers, now_ms
from harness import LiveTest

PAIRS = int(os.environ.get('POSTDATE_FUZZ_CASES', '20000'))


class TopicPatterns(LiveTest):
    vhosts = 0

    def test_against_the_definition(self):
        seed = int(os.environ.get('POSTDATE_FUZZ_SEED', str(int(now_ms()) % 100000)))
        with tempfile.TemporaryDirectory() as folder:
            sources = [os.path.join(harness.ROOT, *path) for path in (('exchange-type', 'src', 'postdate_exchange_topic.erl'),
                                                                      ('exchange-type', 'src', 'postdate_exchange_bindings.erl'),
                                                                      ('tests', 'exchange_type', 'topic_fuzz.erl'))]
            subprocess.run(['erlc', '-o', folder, *sources], check=True)
            said = subprocess.run(['erl', '-noshell', '-pa', folder, '-eval', f'topic_fuzz:run({PAIRS}, {seed}), halt().'],
                                  check=True, stdout=subprocess.PIPE, timeout=300).stdout.decode()
        print(f'note exchange topic: seed {seed}, {said.strip()}', flush=True)
        matched, reductions, among = map(int, re.fullmatch(
            rf'{PAIRS} pairs, (\d+) matched\nslow: (\d+) reductions\namong 1000: (\d+) reductions\n', said).groups())
        self.assertGreater(matched, PAIRS // 50)
        self.assertLess(reductions, 100_000, 'it grows faster than words times words')
        self.assertLess(among, 1_000, 'it looks at each binding')


class TopicSideBySide(TypeServers):

    def test_as_rabbitmq_does(self):
        """The same bindings on an exchange of RabbitMQ's and on one of the type, and the same keys to both."""
        a = self.served()
        rng = random.Random(7)
        a.c.channel.exchange_declare('plain', 'topic')
        a.exchange('typed', 'topic')
        words = ['#', '*', 'a', 'b', '']
        patterns = {'.'.join(rng.choices(words, k=rng.randint(0, 4))) for _ in range(60)}
        patterns = sorted(p for p in patterns if p.count('#') <= 2)  # 4.3 takes no more
        for i, pattern in enumerate(patterns):
            for exchange in ('plain', 'typed'):
                a.queue(f'{exchange} {i}', exchange, pattern)
        for key in sorted({'.'.join(rng.choices(['a', 'b', 'c', ''], k=rng.randint(0, 5))) for _ in range(150)}):
            for exchange in ('plain', 'typed'):
                a.publish(exchange, key, key.encode())
        for i, pattern in enumerate(patterns):
            got = [[m.body for m in iter(lambda: a.c.get(f'{exchange} {i}'), None)] for exchange in ('plain', 'typed')]  # noqa: B023
            self.assertEqual(*got, pattern)

    def test_many_bindings(self):
        """What a search costs among 1,000 bindings: with Mnesia no more than among few, with Khepri each is looked at, once."""
        a = self.served()
        for exchange, bindings in (('few', 3), ('many', 1000)):
            a.exchange(exchange, 'topic')
            a.c.channel.queue_declare('q', durable=True)
            for i in range(bindings):
                a.c.channel.queue_bind('q', exchange, f'a.{i}.*')
        cost = {exchange: self.reductions(exchange) for exchange in ('few', 'many')}
        mnesia = self.servers.rabbitmqctl('eval', 'ets:whereis(rabbit_route) =/= undefined.').strip() == 'true'
        print(f'note exchange topic: reductions of a search {cost}, {"Mnesia" if mnesia else "Khepri"}', flush=True)
        self.assertLess(cost['many'], 1_000 if mnesia else 20_000)

    def reductions(self, exchange):
        """The least of some, for the first may load what it calls."""
        name = f'rabbit_misc:r(<<"{self.p.vhost}">>, exchange, <<"{exchange}">>)'
        said = self.servers.rabbitmqctl('eval', f"""lists:min([begin
            {{reductions, Before}} = process_info(self(), reductions),
            [_] = postdate_exchange_bindings:matching({name}, [<<"a.2.x">>]),
            {{reductions, After}} = process_info(self(), reductions),
            After - Before end || _ <- lists:seq(1, 5)]).""")
        return int(said)
