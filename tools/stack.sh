#!/bin/bash
# stack.sh COMMAND: a private Postgres and a private RabbitMQ for demos, tests and trying things out.
#
#   start             start what is not running (also: start-postgres, start-rabbitmq)
#   stop              stop both, keep the data (also: stop-postgres, stop-rabbitmq)
#   kill-postgres, kill-rabbitmq
#                     kill -9, as a power cut would, for tests
#   clean             stop both and delete everything
#   status            what runs, and where; exit 0 when both run
#
# Everything is in $STACK_DIR (default build/stack): env (to be sourced), postgres.log, rabbitmq.log, rabbitmqctl.
# STACK_PLUGINS_DIR=dir adds a folder of RabbitMQ plugins and enables rabbitmq_delayed_message_exchange from it; it is
# remembered for later starts of the same stack (STACK_PLUGINS_DIR= forgets it).
# Postgres listens on a Unix socket only, RabbitMQ on 127.0.0.1 only. Works as root and as an ordinary user.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
STACK_DIR=${STACK_DIR:-$top/build/stack}
[[ $STACK_DIR == /* ]] || STACK_DIR=$PWD/$STACK_DIR
command=${1:-}
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
    choose_ports
}

write_env() {
    {
        echo "export POSTDATE_POSTGRES_URL='$(postgres_url)'"
        echo "export POSTDATE_AMQP_URL='amqp://guest:guest@127.0.0.1:$port_amqp/%2f'"
        echo "export POSTDATE_HTTP_LISTEN='127.0.0.1:$port_http'"
        echo "export STACK_POSTGRES_PID='$(postgres_pid)'"
        echo "export STACK_RABBITMQ_PID='$(rabbitmq_pid)'"
        echo "export STACK_RABBITMQCTL='$STACK_DIR/rabbitmqctl'"
        echo "export STACK_NO_PLUGIN='$(rabbitmq_no_plugin)'"
    } >"$STACK_DIR/env.new" && mv "$STACK_DIR/env.new" "$STACK_DIR/env"
}

status() {
    local pid up=0
    pid=$(postgres_pid)
    if [[ $pid ]]; then echo "Postgres runs (pid $pid): $(postgres_url)"; else echo "Postgres does not run"; up=1; fi
    pid=$(rabbitmq_pid)
    if [[ $pid ]]; then
        echo "RabbitMQ runs (pid $pid): amqp://guest:guest@127.0.0.1:$port_amqp/%2f"
    else
        echo "RabbitMQ does not run"
        up=1
    fi
    return $up
}

case $command in
start | start-postgres | start-rabbitmq | stop | stop-postgres | stop-rabbitmq | kill-postgres | kill-rabbitmq | status) ;;
clean) [[ -e $STACK_DIR ]] || exit 0 ;;
*) echo "usage: tools/stack.sh start|stop|clean|status|{start,stop,kill}-{postgres,rabbitmq}" >&2; exit 64 ;;
esac
case $command in
stop* | status | clean) [[ -e $STACK_DIR/.postdate-stack ]] || { echo "No stack in $STACK_DIR."; exit 0; } ;;
esac

prepare
result=0
case $command in
start)
    # Both boot at the same time; RabbitMQ takes longer, so it goes first.
    rabbitmq_launch && postgres_launch && postgres_wait && rabbitmq_wait || result=1
    ;;
start-postgres) postgres_launch && postgres_wait || result=1 ;;
start-rabbitmq) rabbitmq_launch && rabbitmq_wait || result=1 ;;
stop | clean)
    rabbitmq_ask_to_stop
    postgres_stop || result=1
    rabbitmq_stop || result=1
    ;;
stop-postgres) postgres_stop || result=1 ;;
stop-rabbitmq) rabbitmq_stop || result=1 ;;
kill-postgres) postgres_kill || result=1 ;;
kill-rabbitmq) rabbitmq_kill || result=1 ;;
status) status || result=1 ;;
esac

if [[ $command == clean && $result -eq 0 ]]; then
    rm -rf "$home" "$STACK_DIR"
elif [[ $command != status ]]; then
    write_env
fi
exit $result
