#!/bin/bash
# deps.sh [EXTRA-PACKAGE ...]: makes sure that what Postdate is built and tested with is installed. Installs missing
# packages on Debian and Ubuntu, says what is needed elsewhere, and is silent and fast when everything is there.
# deps.sh --only PACKAGE ...: nothing but these. PACKAGE:ARCHITECTURE is one for another machine.
# Exit: 0 all there, 69 something is missing and could not be installed.
set -u

# gcc only recommends libc6-dev, and what is recommended is not installed here.
packages=(gcc libc6-dev make pkg-config librabbitmq-dev libssl-dev libpq-dev libjansson-dev libyaml-dev libcmocka-dev
    postgresql rabbitmq-server openssl python3 python3-pika)
if [[ ${1:-} == --only ]]; then packages=("${@:2}"); else packages+=("$@"); fi

if ! command -v dpkg-query >/dev/null; then
    pkg-config --exists librabbitmq libssl libpq jansson yaml-0.1 cmocka 2>/dev/null && command -v rabbitmq-server >/dev/null &&
        command -v initdb >/dev/null && exit 0
    cat >&2 <<'TEXT'
Packages can be installed automatically on Debian and Ubuntu only. Please install:
  gcc (or clang) with the C library's headers, GNU make, pkg-config
  development files of librabbitmq (rabbitmq-c), OpenSSL, libpq, jansson, libyaml, cmocka
  PostgreSQL 14 or newer and RabbitMQ 3.10 or newer (the programs; no running service is needed)
  Python 3 with pika, for the demo and the tests
TEXT
    exit 69
fi

missing=()
foreign=
state=$(dpkg-query -W -f '${Package}:${Architecture} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    sed "s/:all / /; s/:$(dpkg --print-architecture) / /")
for p in "${packages[@]}"; do
    # A pkg-config may also be the one of the package pkgconf.
    [[ $p == pkg-config ]] && command -v pkg-config >/dev/null && continue
    [[ $p != *:* ]] || foreign=${p#*:}
    [[ $'\n'$state$'\n' == *$'\n'"$p installed"$'\n'* ]] || missing+=("$p")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "Missing packages: ${missing[*]}" >&2
as_root=()
if [[ $(id -u) -ne 0 ]]; then
    # Without a terminal sudo must not wait for a password that nobody can type.
    if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; } && sudo true; then
        as_root=(sudo)
    else
        echo "Install them as root, then run make again:" >&2
        [[ ! $foreign ]] || echo "  dpkg --add-architecture $foreign && apt-get update" >&2
        echo "  apt-get install ${missing[*]}" >&2
        exit 69
    fi
fi

# What apt and the packages say, hundreds of lines, and warnings that mean nothing, is shown when they fail.
said=$(mktemp) || exit 73
made_policy='' added=''
clean_up() {
    [[ ! $added ]] || "${as_root[@]}" dpkg --remove-architecture "$added"
    [[ ! $made_policy ]] || "${as_root[@]}" rm -f "$policy"
    rm -f "$said"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# The servers' packages would start system services. Postdate runs private ones, so this keeps the new ones off;
# a policy that the machine already has is left alone.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@" \
        </dev/null >>"$said" 2>&1
}
install() { apt install -y --no-install-recommends "${missing[@]}"; }

if [[ $foreign && $'\n'$(dpkg --print-foreign-architectures)$'\n' != *$'\n'"$foreign"$'\n'* ]]; then
    "${as_root[@]}" dpkg --add-architecture "$foreign" && added=$foreign
fi

echo "Installing them with apt-get, which takes a minute or two ..." >&2
# The lists may be missing, or older than what the mirror has.
if ! install && ! { : >"$said" && apt update && install; }; then
    tail -n 40 "$said" >&2 # what update could not fetch is why packages are unknown
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 69
fi
added=''
