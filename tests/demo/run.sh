#!/bin/bash
# run.sh BIN_DIR: the demo from nothing to nothing: private servers, the gateway, demo.py, and all of it away again.
# PYTHON: an interpreter with pika. TRANSPORT: who waits, the gateway's [handover] transport (default auto); for plugin,
# RabbitMQ gets the delayed-message plugin of the folder STACK_PLUGINS_DIR, else its test double. PLUGIN_APP=1: instead,
# RabbitMQ gets Postdate's exchange type, and plugin_app.py is an application of the plugin.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$1" && pwd) || exit 1
transport=${TRANSPORT:-auto}
case $transport in
auto | native | plugin | ttl | timer) ;;
*) echo "TRANSPORT=$transport: allowed are auto, native, plugin, ttl, timer" >&2; exit 64 ;;
esac
export STACK_DIR=$top/build/demo
log=$STACK_DIR/postdated.log
gateway=

cleanup() {
    trap '' INT TERM HUP
    if [[ $gateway ]]; then
        kill -TERM "$gateway" 2>/dev/null
        for _ in {1..100}; do kill -0 "$gateway" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "$gateway" 2>/dev/null
        wait "$gateway" 2>/dev/null
    fi
    "$top/tools/stack.sh" clean >/dev/null
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$top/tools/stack.sh" clean >/dev/null # of a demo that was killed
if [[ $transport == plugin && -z ${STACK_PLUGINS_DIR:-} ]]; then
    echo "Building a test double of the delayed-message plugin (STACK_PLUGINS_DIR=folder takes the real one) ..."
    STACK_PLUGINS_DIR=$top/build/plugin-double
    "$top/tools/plugin_double.sh" "$STACK_PLUGINS_DIR" || exit
    export STACK_PLUGINS_DIR DEMO_PLUGIN=double
fi
client=demo.py
if [[ ${PLUGIN_APP:-} ]]; then
    client=plugin_app.py
    export STACK_EXCHANGE_TYPE=1
fi
echo "Starting a private Postgres and a private RabbitMQ ..."
"$top/tools/stack.sh" start || exit 1
# shellcheck disable=SC1091
. "$STACK_DIR/env"
export POSTDATE_CONFIG=/dev/null POSTDATE_HANDOVER_TRANSPORT=$transport
"$bin/postdate" migrate >"$log" 2>&1 || { result=$?; cat "$log" >&2; exit $result; }
"$bin/postdated" >>"$log" 2>&1 &
gateway=$!

DEMO_GATEWAY_PID=$gateway DEMO_GATEWAY_LOG=$log DEMO_POSTDATE=$bin/postdate "${PYTHON:-/usr/bin/python3}" "$top/tests/demo/$client"
result=$?
if [[ $result -ne 0 && $result -ne 130 ]]; then
    echo "The gateway's log:" >&2
    tail -n 20 "$log" >&2
    if ! kill -0 "$gateway" 2>/dev/null; then
        wait "$gateway"
        result=$?
        gateway=
        [[ $result -ne 0 ]] || result=1
    fi
fi
exit $result
