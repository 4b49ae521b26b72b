"""A RabbitMQ of three nodes on this machine: which of them runs, who leads, and who sees whom."""

from servers import Rabbit, wait_until


class Cluster(Rabbit):
    """Nodes are numbered from 0."""
    settings = {'STACK_NODES': '3'}
    ticks = ('-kernel', 'net_ticktime', '20')  # as tools/stack_rabbitmq.sh has it: both sides must be of one mind
    STACK_LIMIT_S = 600  # three boot at the same time, on a machine that does other things

    def hosts(self):
        return ','.join(f'127.0.0.1:{port}' for port in self.ports)

    # --- a node comes and goes
    def kill(self, node):
        self.stack('kill-node', node + 1)

    def stop(self, node):
        self.stack('stop-node', node + 1)

    def start(self, node):
        self.stack('start-node', node + 1)
        self.wait_whole()

    def pid(self, node):
        return int(self.erlang('list_to_integer(os:getpid()).', node))

    def restart_app(self, node):
        """A restart of RabbitMQ in the Erlang machine that stays: a rolling upgrade's faults in a tenth of its time."""
        self.erlang('rabbit:stop().', node)
        try:
            self.erlang('rabbit:start().', node)
        except RuntimeError:  # on a busy machine a part of it may not answer in time
            self.kill(node)
            self.start(node)
        self.wait_whole()

    def running(self, node):
        try:
            return self.erlang('rabbit:is_running().', node) == 'true'
        except RuntimeError:
            return False

    def wait_whole(self, deadline_s=240):
        """All run and see each other, and are told what is declared on another one: who stood still for long can be left out of
        that by RabbitMQ 4.0, and does not find out. Without Mnesia (RabbitMQ 4.3) there are none of its nodes."""
        def whole():
            try:
                return all(self.running(i) and int(self.erlang('length(rabbit_nodes:all_running()).', i)) == len(self.nodes)
                           and int(self.erlang('length(mnesia:system_info(running_db_nodes)).', i)) in (0, len(self.nodes))
                           for i in range(len(self.nodes)))
            except (RuntimeError, ValueError):
                return False
        wait_until(whole, deadline_s, 'all nodes to run and to see each other', 0.1)

    # --- partitions
    def _others(self, node):
        return '[' + ', '.join(f"'{n}'" for i, n in enumerate(self.nodes) if i != node) + ']'

    def cut(self, node):
        """It and the others refuse each other from now on: its cookie for them is another one than theirs for it. Needs no
        rights on the machine's network, and is noticed at once, as a cable that is pulled out at a switch's other side is
        not: that is what hang() is for."""
        others = self._others(node)
        # At the same moment: one that loses it while another can still ask it whether it runs takes that for a partial partition, and
        # stops itself. So nothing else runs there meanwhile, and by itself it answers nobody between the two.
        self.erlang('process_flag(priority, max), erlang:system_flag(multi_scheduling, block), '
                    f'[erlang:set_cookie(N, cut) || N <- {others}], '
                    f'Cut = [spawn_opt(erlang, disconnect_node, [N], [monitor, {{priority, max}}]) || N <- {others}], '
                    "[receive {'DOWN', Ref, process, _, _} -> ok after 5000 -> ok end || {_, Ref} <- Cut], "
                    'erlang:system_flag(multi_scheduling, unblock), ok.', node)

    def join(self, node):
        self.erlang(f'[erlang:set_cookie(N, erlang:get_cookie()) || N <- {self._others(node)}], '
                    f'[net_kernel:connect_node(N) || N <- {self._others(node)}], ok.', node)

    def seen_by(self, node):
        """How many nodes it sees, itself included."""
        return 1 + int(self.erlang(f'length([N || N <- {self._others(node)}, lists:member(N, nodes())]).', node))

    # --- quorum queues
    def leader(self, vhost, queue, ask=0):
        """The number of the node that leads it; None: nobody, that queue has no leader, or the node asked can't say while
        others leave it."""
        try:
            found = self.erlang(f'case rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)) of '
                                '{ok, Q} -> case amqqueue:get_pid(Q) of {_, N} -> N; P when is_pid(P) -> node(P); _ -> none end; '
                                '_ -> none end.', ask).strip("'")
        except RuntimeError:
            return None
        return self.nodes.index(found) if found in self.nodes else None

    def lead(self, vhost, queue, node, ask=0):
        """That node leads the queue from now on."""
        self.erlang(f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)), '
                    f"rabbit_quorum_queue:transfer_leadership(Q, '{self.nodes[node]}').", ask)

    def rebalance(self, vhost, queue, ask=0):
        """As `rabbitmq-queues rebalance` does: the nodes lead as many queues each, as far as these change that."""
        self.erlang(f'{{ok, _}} = rabbit_amqqueue:rebalance(quorum, <<"^{vhost}$">>, <<"^{queue}$">>), ok.', ask)

    def leaders_apart(self, vhost, queues):
        """Evens them out: where new ones are led RabbitMQ chooses by what else there is. The nodes that lead them: more than one."""
        self.rebalance(vhost, f'({"|".join(queues)})')

        def leaders():
            found = [self.leader(vhost, queue) for queue in queues]
            return None not in found and len(set(found)) > 1 and found
        return wait_until(leaders, 30, f'{queues[0]} and those beside it to be led by several nodes')

    def stop_member(self, vhost, queue, node):
        self.erlang(self.found(vhost, queue) + 'ra:stop_server(quorum_queues, {Name, node()}).', node)

    def start_member(self, vhost, queue, node):
        self.erlang(self.found(vhost, queue) + 'catch ra:restart_server(quorum_queues, {Name, node()}).', node)

    def stall(self, vhost, queue, rng):
        """Two of its three members are away, whoever leads: it has no leader until they are back."""
        away = rng.sample(range(len(self.nodes)), 2)
        for node in away:
            self.stop_member(vhost, queue, node)
        return f'its members on nodes {away[0]} and {away[1]} are away'

    def unstall(self, vhost, queue):
        for node in range(len(self.nodes)):
            self.start_member(vhost, queue, node)
        if not self.erlang(self.found(vhost, queue) + 'element(1, ra:members({Name, node()})).') == 'ok':
            raise RuntimeError(f'{queue} has no leader')

    def wait_led_by(self, vhost, queue, node, deadline_s=30):
        def led():
            if self.leader(vhost, queue) != node:
                try:
                    self.lead(vhost, queue, node)  # one that has just been elected may refuse
                except RuntimeError:
                    pass
            return self.leader(vhost, queue) == node
        wait_until(led, deadline_s, f'{queue} to be led by node {node}', 0.1)

    def elect(self, vhost, queue, node, patience_s=10):
        """True: the queue's only member, on a node that was started again, did not make itself the leader and had to be told to
        (https://github.com/rabbitmq/rabbitmq-server/issues/10070, seen with 3.10.8)."""
        def led():
            return self.erlang(self.found(vhost, queue) + 'element(1, ra:members({Name, node()}, 1000)).', node) == 'ok'
        try:
            wait_until(led, patience_s, f'{queue} to have a leader', 0.5)
            return False
        except TimeoutError:
            self.erlang(self.found(vhost, queue) + 'ra:trigger_election({Name, node()}).', node)
            wait_until(led, patience_s, f'{queue} to have a leader', 0.5)
            return True
