#!/bin/bash
# plugin_double.sh [DIR]: builds the test double of RabbitMQ's delayed-message plugin (tests/plugin_double) into the
# plugins folder DIR (default build/plugin-double), for
#   STACK_PLUGINS_DIR=build/plugin-double tools/stack.sh start
# Needs only what Debian's rabbitmq-server brings along. Silent when DIR is up to date. For tests: never install it.
# plugin_double.sh --possible: only says why this RabbitMQ cannot have it, or the plugin, and exits 3, as the other form does.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
source=$top/tests/plugin_double
dir=${1:-$top/build/plugin-double}
name=rabbitmq_delayed_message_exchange-0.0.0-double
broker=$(printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins | sort -V | tail -n 1)
[[ -d $broker ]] || { echo "plugin_double: RabbitMQ is not installed: run 'make deps'" >&2; exit 69; }
version=$(basename "$(dirname "$broker")")
version=${version#rabbitmq_server-}
if [[ $(printf '%s\n' 4.3 "$version" | sort -V | head -n 1) == 4.3 ]]; then
    echo "RabbitMQ $version has no Mnesia, where the delayed-message plugin keeps its messages" >&2
    exit 3
fi
[[ $dir != --possible ]] || exit 0
command -v erlc >/dev/null || { echo "plugin_double: erlc is missing: install erlang-base" >&2; exit 69; }

mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
# Code is compiled against one broker's records: the stamp names it.
stamp=$(cd "$source" && echo "$broker" && cat -- *.erl *.app.src "$top/tools/plugin_double.sh" | sha1sum)
[[ $(cat "$dir/stamp" 2>/dev/null) != "$stamp" ]] || exit 0

new=$(mktemp -d "$dir/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
mkdir "$new/ebin"
ERL_LIBS=$broker erlc -Werror +debug_info +deterministic -o "$new/ebin" "$source"/*.erl
cp "$source/rabbitmq_delayed_message_exchange.app.src" "$new/ebin/rabbitmq_delayed_message_exchange.app"
rm -rf "${dir:?}/$name" "$dir/stamp"
mv "$new" "$dir/$name"
trap - EXIT
echo "$stamp" >"$dir/stamp"
