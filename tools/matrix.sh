#!/bin/bash
# matrix.sh: the README's commands and the packages on each Debian that users have, from nothing (`make matrix`; needs
# root). What is done with the packages is in matrix_packages.sh.
#
#   SUITES="bookworm trixie sid"   which; one after the other, one that fails does not stop the next. Also noble and resolute, of Ubuntu
#   TEST=all|demo|live|packages    demo: the README's first command, in an empty system with git and make, as root, and in another one as an
#                                  ordinary user with sudo; live: that, and all live tests with the plain build; packages: these alone, and
#                                  how long it takes from an empty system to the first delayed message; all: demo, what make test TEST=all runs, and packages
#   ONLY=word                      only tests with this word in their name
#   MATRIX_DIR=/var/tmp/postdate-matrix   SUITE.log is what the last run printed, SUITE.packages what was built; SUITE.layers
#                                  are the systems of one that failed
#   MIRROR=http://deb.debian.org/debian, UBUNTU_MIRROR=http://archive.ubuntu.com/ubuntu
# STACK_PLUGINS_DIR, PLUGIN_APP and POSTDATE_TEST_… are passed on. A system is a chroot made by debootstrap, with the host's name server, proxy and
# certificates. No system is kept for the next run: what one run has installed would hide from the next that it is missing.
# What runs in it has process ids and mounts of its own, which end with it, however it ends.
# The table at the end is also in MATRIX_DIR/table. Exit: 0 when everything passed everywhere.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
MATRIX_DIR=${MATRIX_DIR:-/var/tmp/postdate-matrix}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
UBUNTU_MIRROR=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
TEST=${TEST:-all}
origin=/srv/postdate # where the checkout is copied to
read -ra suites <<<"${SUITES:-bookworm trixie sid}"

say() { echo "matrix: $*" >&2; }
die() { say "$2"; exit "$1"; }

# --- a system: made from nothing by each run, and layers above it for what is done in it ----------------------------
# What is mounted in it by hand may be anybody's files.
remove_system() { # root
    ! grep -q " $1/" /proc/self/mounts || die 73 "$1 has something mounted in it: unmount that first"
    rm -rf "$1"
}

# A debootstrap that is older than that Ubuntu has the same script by the name of the first one that it was for.
bootstrap() { # suite root
    case $1 in
    noble | resolute)
        "$top/tools/deps.sh" --only ubuntu-keyring &&
            debootstrap --variant=minbase --components=main,universe "$1" "$2" "$UBUNTU_MIRROR" gutsy
        ;;
    *) debootstrap --variant=minbase "$1" "$2" "$MIRROR" ;;
    esac
}

make_system() { # suite
    local root=$MATRIX_DIR/$1 file
    say "$1: making an empty system"
    remove_system "$MATRIX_DIR/$1.layers"
    remove_system "$root"
    bootstrap "$1" "$root" >"$MATRIX_DIR/$1.debootstrap.log" 2>&1 ||
        die 69 "$1: debootstrap failed; is the mirror there, and does it have $1? It said: $(tail -n 2 "$MATRIX_DIR/$1.debootstrap.log")"
    # What lets it reach the network as the host does.
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
        if [[ -f $file ]] && grep -q Acquire "$file"; then
            cp "$file" "$root/etc/apt/apt.conf.d/zz-host-${file##*/}"
        fi
    done
    # Nobody needs it after a power failure.
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/zz-matrix"
    mkdir -p "$root/etc/ssl/certs"
    [[ ! -f /etc/ssl/certs/ca-certificates.crt ]] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
}

# Nothing of the host's devices but these. Mounted in a mount namespace that ends with this process.
provide_devices() { # root
    local root=$1 name
    # Itself a mount point, so that programs in there can have namespaces of their own.
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount -t tmpfs -o mode=755 tmpfs "$root/dev" &&
        mkdir "$root/dev/shm" "$root/dev/pts" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts" || return 1
    for name in null zero full random urandom tty; do
        touch "$root/dev/$name" && mount --bind "/dev/$name" "$root/dev/$name" || return 1
    done
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for name in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${name%:*}" "$root/dev/${name#*:}"; done
}

new_layer() { # suite name: sets root, which is the empty system until something is done in it
    local layer=$MATRIX_DIR/$1.layers/$2
    root=$layer/root
    rm -rf "$layer"
    mkdir -p "$layer/changes" "$layer/work" "$root"
    if ! mount -t overlay overlay -o "lowerdir=$MATRIX_DIR/$1,upperdir=$layer/changes,workdir=$layer/work" "$root" 2>/dev/null; then
        cp -a --one-file-system "$MATRIX_DIR/$1/." "$root" || return 1
    fi
    provide_devices "$root"
}

in_layer() { # script: in $root; it stops at the first command that fails
    chroot "$root" "${clean_env[@]}" bash -euc "$1" </dev/null 2>&1 | tee -a "$log"
    return "${PIPESTATUS[0]}"
}

# The checkout as it is, with what is not committed yet, and nothing of an earlier build: a stale object of another
# version would be tested instead.
copy_source() { # root
    local to=$1$origin
    mkdir -p "$to"
    tar -C "$top" --exclude=./build --exclude=./.git --exclude=__pycache__ -cf - . | tar -C "$to" --no-same-owner -xmf -
    local version # what Git says here
    version=$("$top/tools/version.sh" -dev)
    [[ $version = -dev ]] || echo "${version#*+}" >"$to/tools/commit"
}

# --- a run, in namespaces of its own --------------------------------------------------------------------------------
clean_env=(env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
    DEBIAN_FRONTEND=noninteractive TERM="${TERM:-dumb}" TEST="$TEST" ONLY="${ONLY:-}")
while IFS= read -r name; do
    clean_env+=("$name=${!name}")
done < <(compgen -e | grep -E -i '^(https?_proxy|no_proxy|SSL_CERT_FILE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|STACK_PLUGINS_DIR|PLUGIN_APP|POSTDATE_(TEST|CANCEL|FUZZ)_.*)$')

versions() { # root: of what users have
    chroot "$1" "${clean_env[@]}" bash -c '
        of() { dpkg-query -W -f "\${Version}\n" "$1" 2>/dev/null | sed "s/^[0-9]*://; s/[-+~].*//" | grep -m 1 .; }
        postgres=$(printf "%s\n" /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)
        echo "$(of rabbitmq-server)|$($postgres --version 2>/dev/null | cut -d " " -f 3)|$(of "librabbitmq[0-9]*")"'
}

# shellcheck source=tools/matrix_packages.sh
. "$top/tools/matrix_packages.sh"

# The README's first lines, and nothing else, in a system where nothing else was done. Sets demo_root or demo_user.
run_demo() { # who, in which folder, what is installed first
    local who=$1 folder=$2/postdate began rc=0
    printf -v "demo_$who" 'FAILED'
    new_layer "$suite" "$who" && copy_source "$root" || return
    say "$suite: make demo as $who"
    in_layer "
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends $3 >/root/apt.log 2>&1 || { tail /root/apt.log; exit 69; }
        cd $origin
        git init -q
        git add -A
        git -c user.name=matrix -c user.email= commit -qm 'The checkout, with what is not committed yet.'
        [ $who = root ] && exit
        useradd --create-home $who
        chown -R $who: .
        echo '$who ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/$who
        echo 'Defaults env_keep += \"http_proxy https_proxy no_proxy\"' >>/etc/sudoers.d/$who" || return
    began=$SECONDS
    in_layer "exec setpriv --reuid $who --regid $who --init-groups env HOME=\$(getent passwd $who | cut -d: -f6) bash -euc '
        git clone -q $origin $folder && cd $folder
        make demo'" || rc=1
    printf -v "demo_$who" %s "$([[ $rc -eq 0 ]] && echo ok || echo FAILED) in $((SECONDS - began)) s"
    return $rc
}

run_tests() { # sets tests; in the system in which root had the demo
    local rc=0
    say "$suite: make test TEST=$TEST"
    in_layer "cd /usr/src/postdate && make test TEST=$TEST" || rc=1
    tests=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    tests=${tests:-did not run to its end}
    return $rc
}

run_suite() { # suite; fields of its row go to SUITE.row
    local suite=$1 row=$MATRIX_DIR/$1.row log=$MATRIX_DIR/$1.log began=$SECONDS rc=0 root
    local demo_root=- demo_user=- tests='no system' packages=- known='||'
    tell() { echo "$suite|$known|$demo_root|$demo_user|$tests|$packages|$(((SECONDS - began + 30) / 60))" >"$row"; }
    tell
    make_system "$suite" || exit
    : >"$log"
    tests='did not end'
    tell
    if [[ $TEST != packages ]]; then
        run_demo user /home/user 'git make sudo' || rc=1
        run_demo root /usr/src 'git make' || rc=1
        known=$(versions "$root")
        tell
    fi
    case $TEST in
    all | live) run_tests || rc=1 ;;
    *) tests=- ;;
    esac
    tell
    if [[ $TEST == all || $TEST == packages ]]; then
        packages='did not end'
        tell
        say "$suite: packages"
        if test_packages "$suite"; then packages="ok, message in $(sed -n 's/^The first delayed message came within \([0-9]* s\) .*/\1/p' "$log")"; else packages=FAILED rc=1; fi
    fi
    [[ $TEST != packages ]] || known=$(versions "$root")
    tell
    exit "$rc"
}

# --- all of them ----------------------------------------------------------------------------------------------------
table() {
    local suite fields
    {
        echo 'suite|RabbitMQ|PostgreSQL|librabbitmq|demo, root|demo, user|tests|packages|minutes'
        for suite in "${suites[@]}"; do cat "$MATRIX_DIR/$suite.row" 2>/dev/null || echo "$suite||||-|-|not run|-|0"; done
    } | while IFS='|' read -ra fields; do
        printf '%-9s %-9s %-11s %-12s %-15s %-15s %-36s %-21s %s\n' "${fields[@]}"
    done
}

# A process id namespace ends with its first process, at once: no server and no mount outlives it.
finish() {
    trap '' INT TERM HUP
    [[ ! $running ]] || { kill -KILL "$running" && wait "$running"; } 2>/dev/null
    echo
    table | tee "$MATRIX_DIR/table"
}

main() {
    local suite result=0 running=
    [[ $(id -u) -eq 0 ]] || die 77 "needs root, for chroots (try: sudo make matrix)"
    [[ $TEST =~ ^(all|demo|live|packages)$ ]] || die 64 "TEST=$TEST: allowed are all, demo, live, packages"
    for suite in "${suites[@]}"; do
        [[ $suite =~ ^[a-z]+$ ]] || die 64 "SUITES: $suite is not the name of a Debian (as in SUITES=\"bookworm trixie sid\")"
    done
    command -v debootstrap >/dev/null || "$top/tools/deps.sh" --only debootstrap || die 69 "debootstrap is missing: install it"
    unshare --mount --pid --fork true 2>/dev/null || die 71 "namespaces for mounts and processes are not allowed here (in a container?)"
    mkdir -p "$MATRIX_DIR" || die 73 "$MATRIX_DIR: cannot make this folder"
    exec 8>"$MATRIX_DIR/lock"
    flock -n 8 || die 75 "another one runs in $MATRIX_DIR"
    for suite in "${suites[@]}"; do rm -f "$MATRIX_DIR/$suite.row"; done
    trap 'finish; exit 130' INT TERM HUP
    for suite in "${suites[@]}"; do
        setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child -- "$0" --suite "$suite" 8>&- &
        running=$!
        if wait "$running"; then rm -rf "$MATRIX_DIR/$suite" "$MATRIX_DIR/$suite.layers"; else result=1; fi
        running=
    done
    finish
    exit $result
}

if [[ ${1:-} == --suite ]]; then run_suite "$2"; else main; fi
