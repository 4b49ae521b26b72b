# Shared by the parts of stack.sh: where things are, ports, processes. Sourced, not run.
# shellcheck shell=bash disable=SC2154

die() {
    echo "stack: $*" >&2
    exit 1
}

say() { echo "  $*"; }

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

# Seconds with one decimal since a now_ms.
since() { local ms=$(($(now_ms) - $1)); echo "$((ms / 1000)).$((ms % 1000 / 100)) s"; }

# The user that servers which refuse root run as.
ordinary_user() { id -u postgres >/dev/null 2>&1 && echo postgres || echo nobody; }

# Runs a command as an ordinary user (when root, as that one).
as_ordinary() {
    if [[ $(id -u) -ne 0 ]]; then
        "$@"
    else
        local user
        user=$(ordinary_user)
        setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups -- "$@"
    fi
}

# $home is where the servers keep their files: $STACK_DIR, or a folder with a short, plain path where that one is too
# long for a Unix socket (107 bytes), has characters that RabbitMQ's scripts cannot take, or cannot be entered by the
# user that Postgres runs as (a checkout under /root).
choose_home() {
    home=$STACK_DIR
    if [[ -L $STACK_DIR/home ]]; then
        home=$(readlink "$STACK_DIR/home")
    elif [[ ${#STACK_DIR} -gt 70 || $STACK_DIR == *[!A-Za-z0-9/._-]* ]] || ! as_ordinary test -x "$STACK_DIR"; then
        home=/var/tmp/postdate-$(id -u)-$hash
        [[ -e $STACK_DIR/env ]] || say "Server files go to $home ($STACK_DIR does not suit the servers)"
    fi
    [[ $home == "$STACK_DIR" ]] && return
    if ! mkdir -m 711 "$home" 2>/dev/null; then
        [[ -d $home && ! -L $home && -O $home ]] || die "$home exists and is not a folder of $(id -un): please remove it"
    fi
    ln -sfn "$home" "$STACK_DIR/home"
}

port_is_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below the kernel's range for outgoing connections and away from the servers' usual ports.
free_port() {
    local port
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        [[ " $* " == *" $port "* ]] || port_is_used $port || break
    done
    echo $port
}

# Ports are kept in a file so that URLs survive restarts; new ones only if somebody else took one meanwhile.
choose_ports() {
    port_amqp="" port_dist="" port_epmd="" port_http=""
    # shellcheck disable=SC1091
    [[ -e $STACK_DIR/ports ]] && . "$STACK_DIR/ports"
    [[ -n $port_http ]] && { [[ $(rabbitmq_pid) ]] || [[ $command != start* ]]; } && return
    epmd_stop
    if [[ -n $port_http ]] && ! port_is_used "$port_amqp" && ! port_is_used "$port_dist" &&
        ! port_is_used "$port_epmd"; then
        return
    fi
    port_amqp=$(free_port)
    port_dist=$(free_port "$port_amqp")
    port_epmd=$(free_port "$port_amqp" "$port_dist")
    port_http=$(free_port "$port_amqp" "$port_dist" "$port_epmd")
    printf 'port_%s\n' "amqp=$port_amqp" "dist=$port_dist" "epmd=$port_epmd" "http=$port_http" >"$STACK_DIR/ports"
}

# Starts a command in a session of its own, with nothing open but the log: $1 log file, rest the command. Sets $started.
launch() {
    local log=$1
    shift
    (
        for fd in /proc/"$BASHPID"/fd/*; do
            fd=${fd##*/}
            [[ $fd -le 2 ]] || eval "exec $fd>&-"
        done 2>/dev/null
        cd / || exit 1
        exec setsid "$@"
    ) </dev/null >>"$log" 2>&1 &
    started=$!
}

# A pid from a file may be stale, even reused: it counts only if its command line contains the given text.
pid_if() { # file text
    local pid
    read -r pid _ 2>/dev/null <"$1" || [[ ${pid:-} ]] || return 0
    [[ $pid =~ ^[0-9]+$ && -r /proc/$pid/cmdline ]] || return 0
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$2" && echo "$pid"
    return 0
}

pid_lives() { [[ -e /proc/$1 ]] && [[ $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) != [ZX] ]]; }

# Waits until none of the processes lives: $1 seconds, rest pids. 1 when some still do.
wait_gone() {
    local until=$(($(now_ms) + $1 * 1000)) pid
    shift
    for pid in "$@"; do
        while pid_lives "$pid"; do
            [[ $(now_ms) -lt $until ]] || return 1
            sleep 0.05
        done
    done
}
