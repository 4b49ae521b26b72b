#!/bin/bash
# run.sh BIN_DIR: the private servers, then the gateway in the foreground. Ctrl-C stops the gateway and leaves the
# servers running (make stack-stop).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1" && pwd)
export STACK_DIR=${STACK_DIR:-$top/build/stack}
"$top/tools/stack.sh" start
# shellcheck disable=SC1091
. "$STACK_DIR/env"
"$bin/postdate" migrate
echo "The gateway runs until Ctrl-C. In another terminal: . $STACK_DIR/env, then build/postdate status"
exec "$bin/postdated"
