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
    amqp_ports=() dist_ports=() port_epmd="" port_http=""
    # shellcheck disable=SC1091
    [[ -e $STACK_DIR/ports ]] && . "$STACK_DIR/ports"
    local node port used=
    if [[ ${#amqp_ports[@]} -eq $nodes && -n $port_http ]]; then
        node_any_pid >/dev/null && return
        [[ $command == start* ]] || return
        epmd_stop
        for port in "${amqp_ports[@]}" "${dist_ports[@]}" "$port_epmd"; do
            port_is_used "$port" && used=$port
        done
        [[ $used ]] || return
    fi
    amqp_ports=() dist_ports=()
    for node in $(node_list); do
        amqp_ports[node]=$(free_port "${amqp_ports[@]}" "${dist_ports[@]}")
        dist_ports[node]=$(free_port "${amqp_ports[@]}" "${dist_ports[@]}")
    done
    port_epmd=$(free_port "${amqp_ports[@]}" "${dist_ports[@]}")
    port_http=$(free_port "${amqp_ports[@]}" "${dist_ports[@]}" "$port_epmd")
    {
        for node in $(node_list); do
            echo "amqp_ports[$node]=${amqp_ports[node]} dist_ports[$node]=${dist_ports[node]}"
        done
        echo "port_epmd=$port_epmd port_http=$port_http"
    } >"$STACK_DIR/ports"
}

# How many nodes RabbitMQ has: said at the first start, and the same for as long as the stack is there.
choose_nodes() {
    nodes=$(cat "$STACK_DIR/nodes" 2>/dev/null || echo "${STACK_NODES:-1}")
    [[ $nodes == [1-9] ]] || die "STACK_NODES=$nodes: allowed are 1 to 9"
    [[ ${STACK_NODES:-$nodes} == "$nodes" ]] || die "this stack has $nodes nodes, not $STACK_NODES: 'tools/stack.sh clean' first"
    echo "$nodes" >"$STACK_DIR/nodes"
}

node_list() { seq 1 "$nodes"; }

# What the functions of stack_rabbitmq.sh are about from here on: one node, or with `node_each COMMAND …` each in turn.
node_select() {
    local suffix=
    [[ $1 -eq 1 ]] || suffix=-$1
    node=$1 rabbit=$home/rabbitmq$suffix rabbit_log=$STACK_DIR/rabbitmq$suffix.log
    node_name=postdate-$hash$suffix@localhost node_ctl=$STACK_DIR/rabbitmqctl$suffix
    port_amqp=${amqp_ports[$1]:-} port_dist=${dist_ports[$1]:-}
}

node_each() {
    local n result=0
    for n in $chosen; do
        node_select "$n"
        "$@" || result=1
    done
    return $result
}

# The processes of all nodes; 1 when none runs.
node_any_pid() {
    local n found=1
    for n in $(node_list); do
        node_select "$n"
        [[ $(rabbitmq_pid) ]] && { rabbitmq_pid; found=0; }
    done
    return $found
}

# Starts a command in a session of its own, with nothing open but the log: $1 log file, rest the command. Sets $started.
launch() {
    local log=$1
    shift
    (
        # No 2>/dev/null here: bash would keep the real stderr as fd 10, and the loop would close that.
        for fd in /proc/"$BASHPID"/fd/*; do
            fd=${fd##*/}
            [[ $fd -le 2 ]] || eval "exec $fd>&-"
        done
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
