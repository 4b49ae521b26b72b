"""What test classes inherit, and the marks by which run.py chooses tests."""
import contextlib
import functools
import unittest

from .place import Place
from .servers import stack
from .settings import slowness
from .waiting import wait_until


def not_san(item):
    """Marks a test or class that the sanitizer run leaves out."""
    item.not_san = True
    return item


def with_both(item):
    """Marks what `make test TEST=all` runs with the plain build, too, though the sanitizer build can run it: it asks more of that."""
    item.with_both = True
    return item


def only_full(item):
    """Marks what only the full form runs: for one broker more, with the same code of ours. A class may also have names
    of tests in `only_full`."""
    item.only_full = True
    return item


def needs_vhosts(count):
    """Marks a test that needs more fresh vhosts than its class says, or none."""
    def mark(test):
        test.vhosts = count
        return test
    return mark


class TooSlow(AssertionError):
    """What was to be tried before a time was not: nothing is known."""


def given_time(test):
    """Marks a test that tries something before a time that it sets, self.pace times as far ahead as it needs on a quiet
    machine. When it is TooSlow it begins again in a new place, with more time."""
    paces = (1, 3, 9)

    @functools.wraps(test)
    def run(self):
        for self.pace in paces:
            try:
                return test(self)
            except TooSlow as e:
                print(f'note {self.id()}: {e} (pace {self.pace})', flush=True)
                if self.pace == paces[-1]:
                    raise
            self.doCleanups()
    return needs_vhosts(len(paces))(run)


end_of_job = contextlib.ExitStack()


def at_end_of_job(function, *args, **kwargs):
    """For what classes share that run one after the other in one process (`together`)."""
    end_of_job.callback(function, *args, **kwargs)


class LiveTest(unittest.TestCase):
    """self.place() makes a database for one test and takes one of its `vhosts`; it is closed after it."""
    maxDiff = 4000
    vhosts = 1  # how many fresh ones run.py gives to each job (a test, or a SharedTest class)
    weight = 1  # heavier jobs start first
    # Who waits. None: as users have it, by default the broker. 'timer' where the gateway's own waiting is the subject.
    who_waits = None

    def place(self, **options):
        options.setdefault('transport', self.who_waits)
        place = Place(options.pop('stack', None) or stack(), **options)
        self.places = getattr(self, 'places', [])
        self.places.append(place)
        self.addCleanup(place.close)
        return place

    def logs(self):
        return '\n'.join(p.log_tail() for p in getattr(self, 'places', []))

    def assert_on_time(self, message, published_ms, delay_ms, late_ms=5000):
        """Not early (neither by what was asked nor by what the header says), and not seconds later, as by a way that is for losses."""
        due = published_ms + delay_ms
        self.assertGreaterEqual(message.at_ms, due, 'delivered early')
        self.assertLessEqual(message.at_ms, due + late_ms * slowness(), 'delivered late')


class SharedTest(LiveTest):
    """One place, gateway, client and consumed queue for all tests of the class; routing keys keep them apart."""
    gateway_env = {}
    place_options = {}

    @classmethod
    def setUpClass(cls):
        cls.p = Place(stack(), **{'transport': cls.who_waits, **cls.place_options})
        cls.addClassCleanup(cls.p.close)
        cls.gw = cls.p.gateway(**cls.gateway_env)
        cls.parked = []

    @classmethod
    def tearDownClass(cls):
        client = cls.p.client()
        wait_until(lambda: client.depth('postdate.intake') == 0, 10, 'the intake queue to be empty')

    def setUp(self):
        self.c = self.p.client()
        self.addCleanup(self.c.close)

    def inbox(self, key=None):
        """A consumed queue bound to `key` (by default the test's own name), and that key."""
        key = key or self.id().rsplit('.', 1)[-1]
        consumer = self.p.consumer('q.' + key, bind=key)
        return consumer, key

    def rejected(self, body, deadline_s=10.0):
        """The parked message with that body."""
        return wait_until(lambda: self.find_rejected(lambda m: m.body == body), deadline_s,
                          f'{body[:40]!r} in postdate.rejected')

    def find_rejected(self, fits):
        """The first of all parked messages of this class that fits, or None."""
        while True:
            m = self.c.get('postdate.rejected')
            if m is None:
                return next((m for m in self.parked if fits(m)), None)
            self.parked.append(m)

    def logs(self):
        return self.p.log_tail()
