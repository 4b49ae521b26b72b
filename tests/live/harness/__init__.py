"""Real programs against real servers: what every live test builds on.

A test class gets a `Place` (a fresh database and a fresh vhost), starts gateways in it, publishes and consumes with
pika, runs the command line and asks the database. `run.py` finds and runs the classes. Tests import from here:

    cases.py      LiveTest, SharedTest; marks: not_san, with_both, only_full, needs_vhosts, given_time
    place.py      Place: a database and a vhost; starts what runs in them
    programs.py   Gateway, Load: running processes, their logs and their ends
    clients.py    Client, Consumer: AMQP
    postgres.py   run_psql, Session: psql
    servers.py    Stack: private servers; stack() are those that all tests share
    waiting.py    wait_until, now_ms
    ports.py      free_port
    settings.py   ROOT, BIN_DIR, SAN, REST, FULL, SANITIZERS_COST, slowness()
"""
from .cases import LiveTest, SharedTest, TooSlow, at_end_of_job, end_of_job, given_time, needs_vhosts, not_san, only_full, with_both
from .clients import Client, Consumer, Received
from .place import STATE, Place, make_template
from .ports import free_port, free_ports
from .postgres import WITHOUT_JIT, Session, postgres_url, psql_error, run_psql
from .programs import Gateway, Load
from .servers import Stack, note_stack, size_of, stack, stacks_of_tests, with_path
from .settings import BIN_DIR, DIE_WITH_PARENT, FULL, REST, ROOT, SAN, SANITIZERS_COST, check_sanitizers, slowness
from .waiting import now_ms, wait_until
