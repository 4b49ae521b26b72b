#!/bin/bash
# stack.sh COMMAND: a private Postgres and a private RabbitMQ for demos, tests and trying things out.
#
#   start             start what is not running (also: start-postgres, start-rabbitmq)
#   stop              stop both, keep the data (also: stop-postgres, stop-rabbitmq)
#   kill-postgres, kill-rabbitmq
#                     kill -9, as a power cut would, for tests
#   start-node N, stop-node N, kill-node N
#                     one node of a cluster
#   clean             stop both and delete everything
#   status            what runs, and where; exit 0 when both run
#
# Everything is in $STACK_DIR (default build/stack): env (to be sourced), postgres.log, rabbitmq.log, rabbitmqctl.
# STACK_NODES=3 makes RabbitMQ a cluster of that many nodes (1 to 9), each with folders rabbitmq, rabbitmq-2, …, logs and a
# rabbitmqctl-N of its own; the start, stop and kill of RabbitMQ are about all of them. It is remembered, too.
# STACK_PLUGINS_DIR=dir adds a folder of RabbitMQ plugins and enables rabbitmq_delayed_message_exchange from it; it is
# remembered for later starts of the same stack (STACK_PLUGINS_DIR= forgets it).
# STACK_EXCHANGE_TYPE=1 builds Postdate's own exchange type (exchange-type/) and enables that instead (file: its file is there, not
# enabled); it is remembered, too.
# Of RabbitMQ's own plugins it has AMQP 1.0 and the exchanges x-random and x-consistent-hash: looking through all of them is most of the work of a start.
# Postgres listens on a Unix socket only, RabbitMQ on 127.0.0.1 only. Works as root and as an ordinary user.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
STACK_DIR=${STACK_DIR:-$top/build/stack}
[[ $STACK_DIR == /* ]] || STACK_DIR=$PWD/$STACK_DIR
command=${1:-} number=${2:-}
hash=$(printf '%s' "$STACK_DIR" | sha1sum | cut -c1-8)

# shellcheck source=tools/stack_lib.sh
. "$top/tools/stack_lib.sh"
# shellcheck source=tools/stack_postgres.sh
. "$top/tools/stack_postgres.sh"
# shellcheck source=tools/stack_rabbitmq.sh
. "$top/tools/stack_rabbitmq.sh"

prepare() {
    mkdir -p "$STACK_DIR" || die "$STACK_DIR: cannot create this folder"
    [[ -w $STACK_DIR ]] || die "$STACK_DIR belongs to $(stat -c %U "$STACK_DIR"): run 'make stack-clean' as that user"
    touch "$STACK_DIR/.postdate-stack"
    # One start, stop or kill at a time; the servers do not inherit this descriptor.
    exec 9>"$STACK_DIR/lock"
    flock 9
    choose_home
    choose_nodes
    choose_ports
}

amqp_url() { local IFS=,; echo "amqp://guest:guest@${amqp_ports[*]/#/127.0.0.1:}/%2f"; }

node_status() {
    local pid
    pid=$(rabbitmq_pid)
    if [[ $pid ]]; then
        echo "$(rabbitmq_label) runs (pid $pid): amqp://guest:guest@127.0.0.1:$port_amqp/%2f"
    else
        echo "$(rabbitmq_label) does not run"
        return 1
    fi
}

write_env() {
    {
        echo "export POSTDATE_POSTGRES_URL='$(postgres_url)'"
        echo "export POSTDATE_AMQP_URL='$(amqp_url)'"
        echo "export AMQP_URL='$(amqp_url)'" # of the applications in the documents
        echo "export POSTDATE_HTTP_LISTEN='127.0.0.1:$port_http'"
        echo "export STACK_POSTGRES_PID='$(postgres_pid)'"
        echo "export STACK_RABBITMQ_PID='$(node_any_pid | paste -sd ' ')'"
        echo "export STACK_RABBITMQCTL='$STACK_DIR/rabbitmqctl'"
        echo "export STACK_NODES='$nodes'"
        echo "export STACK_NO_PLUGIN='$(rabbitmq_no_plugin)'"
    } >"$STACK_DIR/env.new" && mv "$STACK_DIR/env.new" "$STACK_DIR/env"
}

status() {
    local pid up=0
    pid=$(postgres_pid)
    if [[ $pid ]]; then echo "Postgres runs (pid $pid): $(postgres_url)"; else echo "Postgres does not run"; up=1; fi
    node_each node_status || up=1
    return $up
}

case $command in
start | start-postgres | start-rabbitmq | stop | stop-postgres | stop-rabbitmq | kill-postgres | kill-rabbitmq | status) ;;
start-node | stop-node | kill-node) [[ $number == [1-9] ]] || { echo "usage: tools/stack.sh $command N" >&2; exit 64; } ;;
clean) [[ -e $STACK_DIR ]] || exit 0 ;;
*) echo "usage: tools/stack.sh start|stop|clean|status|{start,stop,kill}-{postgres,rabbitmq}|{start,stop,kill}-node N" >&2; exit 64 ;;
esac
case $command in
stop* | status | clean) [[ -e $STACK_DIR/.postdate-stack ]] || { echo "No stack in $STACK_DIR."; exit 0; } ;;
esac

prepare
chosen=$(node_list)
if [[ $command == *-node ]]; then
    [[ $number -le $nodes ]] || die "node $number: this stack has $nodes"
    chosen=$number
fi
result=0
case $command in
start)
    # Both boot at the same time; RabbitMQ takes longer, so it goes first.
    node_each rabbitmq_launch && postgres_launch && postgres_wait && node_each rabbitmq_wait || result=1
    ;;
start-postgres) postgres_launch && postgres_wait || result=1 ;;
start-rabbitmq | start-node) node_each rabbitmq_launch && node_each rabbitmq_wait || result=1 ;;
stop | clean)
    node_each rabbitmq_ask_to_stop
    postgres_stop || result=1
    node_each rabbitmq_stop || result=1
    epmd_stop_unused
    ;;
stop-postgres) postgres_stop || result=1 ;;
stop-rabbitmq | stop-node)
    node_each rabbitmq_ask_to_stop
    node_each rabbitmq_stop || result=1
    epmd_stop_unused
    ;;
kill-postgres) postgres_kill || result=1 ;;
kill-rabbitmq | kill-node) node_each rabbitmq_kill || result=1 ;;
status) status || result=1 ;;
esac

if [[ $command == clean && $result -eq 0 ]]; then
    rm -rf "$home" "$STACK_DIR"
elif [[ $command != status ]]; then
    write_env
fi
exit $result
