"""A database that went back: restored from a backup beside a RabbitMQ that holds messages, or a standby that lagged and was promoted."""
import time

import harness
from handover_kit import handover, metric
from harness import wait_until
from standby_kit import StandbyTest

@harness.not_san  # the tmpfs of each server is large
class Promoted(StandbyTest):
    """An asynchronous standby that lacks some seconds takes over, while gateways live."""
    weight = 5

    def run_failover(self, transport, lag_s=2.5):
        pg = self.pair()
        p = self.place_on(pg, transport=transport)
        env = handover(transport, grace='4s', window='6m') if transport != 'timer' else {}
        gateways = [p.gateway(**env) for _ in range(2)]
        inbox = p.consumer('q', bind='k')
        c = p.client()
        for i in range(600):
            c.publish('k', f'{i}', {'x-delay': 9000 + i * 20})
        wait_until(lambda: sum(p.counts().values()) == 600, 20, 'all to be stored')
        pg.add_standby(synchronous=False)
        inbox.wait(60, 60)
        pg.cut_off()
        before = len(inbox.all())
        time.sleep(lag_s)
        in_lag = len(inbox.all()) - before
        self.assertGreater(in_lag, 20)
        pg.fail_over()
        wait_until(lambda: len({m.body for m in inbox.all()}) == 600, 90, 'all to come')
        wait_until(lambda: p.counts() == {'delivered': 600}, 60, 'all to be settled')
        time.sleep(6)  # what is rescued comes after the grace
        twice = len(inbox.all()) - 600
        said = sum(metric(g, 'postdate_deliveries_said_again_total') for g in gateways)
        print(f'note went back: {transport}: {in_lag} delivered in the lag, {said} said again, {twice} twice', flush=True)
        for g in gateways:
            self.assertTrue(g.lines_with('the database went back'), g.log())
        self.assertEqual(twice, 0, '\n'.join(g.log() for g in gateways))

    def test_what_was_delivered_in_the_lag_comes_once_timer(self):
        self.run_failover('timer')

    def test_what_was_delivered_in_the_lag_comes_once_ttl(self):
        self.run_failover('ttl')
