#!/bin/sh
# make_definitions.sh TEMPLATE <PASSWORD-FILE >DEFINITIONS: puts the salted hash of a password into a definitions file.
#
# The password comes on standard input (one line), so it is in no argument list; what is written holds only its hash, in
# the form that RabbitMQ itself stores: base64(salt + sha256(salt + password)), salt of 4 bytes. Needs GNU coreutils.
# Exit: 0 done, 64 usage, 65 no password or no place for it.
set -eu

template=${1:-}
[ -r "$template" ] || { echo "usage: make_definitions.sh TEMPLATE <PASSWORD-FILE >DEFINITIONS" >&2; exit 64; }
grep -q '@PASSWORD_HASH@' "$template" ||
    { echo "make_definitions: $template has no \"password_hash\": \"@PASSWORD_HASH@\"" >&2; exit 65; }

IFS= read -r password || [ -n "${password:-}" ] || true
[ -n "${password:-}" ] || { echo "make_definitions: no password on standard input" >&2; exit 65; }

bytes() { printf '%s' "$1" | tr a-f A-F | basenc --base16 -d; }

salt=$(head -c 4 /dev/urandom | basenc --base16)
digest=$({ bytes "$salt"; printf '%s' "$password"; } | sha256sum | cut -c 1-64)
hash=$(bytes "$salt$digest" | base64 -w 0)

# base64 has no character that is special here but the slash.
sed "s|@PASSWORD_HASH@|$hash|" "$template"
