#!/bin/bash
# exchange_type.sh [DIR]: compiles RabbitMQ's exchange type of Postdate (exchange-type/) into DIR (default
# build/exchange-type): postdate_exchange-VERSION-otpN.ez, for RabbitMQ's plugins folder. N is the release of Erlang: the file
# loads in that one and the two after it, and a RabbitMQ that cannot load it does not start. VERSION: default RELEASE of the Makefile.
# Needs erlc alone; where RabbitMQ is installed, its callbacks are checked. Silent when DIR is up to date.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
source=$top/exchange-type/src
dir=${1:-$top/build/exchange-type}
version=${VERSION:-$(sed -n "s/^RELEASE := //p" "$top/Makefile")}
name=postdate_exchange-$version
command -v erlc >/dev/null || { echo "exchange_type: erlc is missing: install erlang-base" >&2; exit 69; }
otp=$(erl -noshell -eval 'io:put_chars(erlang:system_info(otp_release)), halt().')
broker=$(printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins | sort -V | tail -n 1)
[[ -d $broker ]] || broker=/opt/rabbitmq/plugins # in the official image
strict=-Werror
[[ -d $broker ]] || broker='' strict='' # without it there is a warning: the behaviour is not known

mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
stamp=$(cd "$source" && echo "$version $otp $broker" && cat -- *.erl *.app.src "$top/LICENSE" "$top/tools/exchange_type.sh" | sha1sum)
[[ $(cat "$dir/stamp" 2>/dev/null) != "$stamp" ]] || exit 0

new=$(mktemp -d "$dir/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir -p "$new/$name/ebin"
ERL_LIBS=$broker erlc $strict +deterministic -o "$new/$name/ebin" "$source"/*.erl
cp "$top/LICENSE" "$new/$name/"
sed "s/VERSION/$version/" "$source/postdate_exchange.app.src" >"$new/$name/ebin/postdate_exchange.app"
# The same sources give the same bytes, whoever compiles them, and where.
chmod -R u=rwX,go=rX "$new"
export TZ=UTC0
(cd "$new" && find "$name" -exec touch -d "@${SOURCE_DATE_EPOCH:-1000000000}" {} + &&
    erl -noshell -eval "{ok, _} = zip:create(\"$name-otp$otp.ez\", [\"$name/LICENSE\" | lists:sort(filelib:wildcard(\"$name/ebin/*\"))], [{compress, []}]), halt().")
"$top/exchange-type/check.sh" "$new/$name-otp$otp.ez"
rm -rf "$dir"/postdate_exchange-* "$dir/stamp"
mv "$new"/*.ez "$dir/"
echo "$stamp" >"$dir/stamp"
