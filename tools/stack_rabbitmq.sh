# The private RabbitMQ of stack.sh. Sourced, not run.
# shellcheck shell=bash disable=SC2154

rabbitmq_find() {
    # The scripts in /usr/sbin change user and read /etc; those in the package's own folder do neither.
    rabbitmq_sbin=$(printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin | sort -V | tail -n 1)
    [[ -x $rabbitmq_sbin/rabbitmq-server ]] || die "RabbitMQ is not installed: run 'make deps'"
    rabbitmq_epmd=$(command -v epmd || echo /usr/lib/erlang/bin/epmd)
}

# Why there is no delayed-message plugin; nothing when there is.
rabbitmq_no_plugin() {
    local reason
    [[ $(cat "$home/rabbitmq/exchange_type" 2>/dev/null) == 1 || ! -s $home/rabbitmq/plugins_dir ]] || return 0
    reason=$("$top/tools/plugin_double.sh" --possible 2>&1)
    [[ $? -eq 3 ]] || reason="the servers were started without the delayed-message plugin"
    echo "$reason"
}

# A pid file of our own: RabbitMQ removes the one it writes when it begins to stop, long before it is gone.
rabbitmq_pid() { pid_if "$rabbit/beam.pid" "$rabbit"; }

epmd_pid() { pid_if "$home/rabbitmq/epmd.pid" "epmd"; }

# Asks it to stop; rabbitmq_stop waits. A second TERM would be one too many for Erlang's handler.
rabbitmq_asked=()
rabbitmq_ask_to_stop() {
    local pid
    pid=$(rabbitmq_pid)
    [[ -z $pid || ${rabbitmq_asked[node]:-} ]] || kill -TERM "$pid" 2>/dev/null
    rabbitmq_asked[node]=yes
}

# The folders of RabbitMQ's applications that it needs itself, those of AMQP 1.0, which is a plugin until 4.0, and the
# exchange types of several intake queues.
rabbitmq_needs() {
    awk 'FNR == 1 { app = FILENAME; sub(".*/", "", app); sub("[.]app$", "", app); folder[app] = FILENAME; sub("/ebin/.*", "", folder[app]) }
        { text[app] = text[app] " " $0 }
        function need(app, list, names, i, n) {
            if (!(app in folder)) return
            print folder[app]
            delete folder[app]
            if (!match(text[app], /[{] *applications *, *[[][^]]*/)) return
            list = substr(text[app], RSTART, RLENGTH)
            sub(/.*[[]/, "", list)
            n = split(list, names, ",")
            for (i = 1; i <= n; i++) { gsub("[^a-z0-9_]", "", names[i]); need(names[i]) }
        }
        END { need("rabbit"); need("rabbitmq_amqp1_0"); need("rabbitmq_random_exchange"); need("rabbitmq_consistent_hash_exchange") }' "$1"/*/ebin/*.app
}

# RabbitMQ as it is installed, without the dozens of plugins that nobody enables here: looking through all of them takes
# more than half of the time that a start takes.
rabbitmq_lean() { # the installed folder, which it prints when it can not tell what is needed
    local to=$rabbit/server folders
    if [[ $(cat "$to/made-of" 2>/dev/null) != "$1" ]] || ! compgen -G "$to/plugins/rabbitmq_random_exchange-*" >/dev/null; then
        folders=$(rabbitmq_needs "$1/plugins" 2>/dev/null)
        [[ $folders == */rabbit-* && -d $1/escript ]] || { echo "$1"; return; }
        # The programs find the rest by where they are themselves, so links to them would not do.
        rm -rf "$to" && mkdir -p "$to/plugins" && cp -RL "$1/sbin" "$to/" && ln -s "$1/escript" "$to/" || return 1
        # shellcheck disable=SC2086
        ln -s $folders "$to/plugins/" && echo "$1" >"$to/made-of" || return 1
    fi
    echo "$to"
}

# A script that runs one of RabbitMQ's programs with this stack's settings and none of the caller's.
rabbitmq_wrapper() { # program, file
    # Each vhost looks for itself every four ticktimes, taken as milliseconds: of one node, whose tests have hundreds, seldom.
    local dir=$rabbit server plugins ticks=' -kernel net_ticktime 3600'
    [[ $nodes -eq 1 ]] || ticks=' -kernel net_ticktime 20'
    server=$(rabbitmq_lean "$(dirname "$rabbitmq_sbin")") || return 1
    plugins=$server/plugins
    [[ $plugins_dir ]] && plugins=$dir/plugins:$plugins
    [[ $exchange_type ]] && plugins=$dir/exchange-type:$plugins
    cat >"$2.new" <<SCRIPT
#!/bin/sh
exec env -i PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 HOME='$dir' \\
    ERL_EPMD_PORT=$port_epmd ERL_EPMD_ADDRESS=127.0.0.1 detached=1 \\
    RABBITMQ_NODENAME=$node_name RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$port_amqp \\
    RABBITMQ_DIST_PORT=$port_dist RABBITMQ_CTL_DIST_PORT_MIN=1024 RABBITMQ_CTL_DIST_PORT_MAX=65535 \\
    RABBITMQ_CTL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \\
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='+sbwt none +sbwtdcpu none +sbwtdio none$ticks -kernel inet_dist_use_interface {127,0,0,1}' \\
    RABBITMQ_CONF_ENV_FILE='$dir/no-such-file' \\
    RABBITMQ_CONFIG_FILE='$dir/rabbitmq.conf' RABBITMQ_CONFIG_FILES='$dir/conf.d' \\
    RABBITMQ_ADVANCED_CONFIG_FILE='$dir/advanced.config' RABBITMQ_ENABLED_PLUGINS_FILE='$dir/enabled_plugins' \\
    RABBITMQ_PLUGINS_DIR='$plugins' RABBITMQ_GENERATED_CONFIG_DIR='$dir/generated' \\
    RABBITMQ_MNESIA_BASE='$dir/mnesia' RABBITMQ_LOG_BASE='$dir/log' RABBITMQ_PID_FILE='$dir/pid' \\
    '$server/sbin/$1' "\$@"
SCRIPT
    chmod 755 "$2.new" && mv "$2.new" "$2"
}

# `rabbitmqctl eval`, said by a C program: a second Erlang costs two thirds of a second of processor time for each call. What is
# no eval, and who can't be reached, is for the real one, which the file is named after.
rabbitmq_eval_wrapper() { # file
    cat >"$1.new" <<SCRIPT
#!/bin/sh
[ "\$1" = eval ] && command -v erl_call >/dev/null || exec '$node_ctl' "\$@"
expression=\$(printf '%s' "\$2")
answer=\$(printf 'try %s of PostdateValue -> io:format("~p~nok", [PostdateValue]) catch PostdateC:PostdateE -> io:format("~p~nerror", [{PostdateC, PostdateE}]) end.\n' "\${expression%.}" |
    HOME='$rabbit' erl_call -r -address 127.0.0.1:$port_dist -fetch_stdout -no_result_term -e 2>/dev/null)
case \$answer in
    *ok) printf '%s' "\${answer%ok}" ;;
    *error) printf 'Error:\n%s' "\${answer%error}"; exit 69 ;;
    *) exec '$node_ctl' "\$@" ;;
esac
SCRIPT
    chmod 755 "$1.new" && mv "$1.new" "$1"
}

# All nodes of a cluster have that of the first.
node_cookie() {
    if [[ $node -gt 1 ]]; then
        cat "$home/rabbitmq/.erlang.cookie"
    else
        head -c 24 /dev/urandom | od -An -vtx1 | tr -d ' \n'
    fi
}

# They find each other by a list. A node that is cut off from the others stops to serve, as one has to choose who wants to
# lose nothing; and that is noticed in seconds instead of a minute.
node_configure() {
    [[ $nodes -gt 1 ]] || return 0
    echo 'cluster_partition_handling = pause_minority'
    echo 'cluster_formation.peer_discovery_backend = classic_config'
    local me=$node n
    for n in $(node_list); do
        node_select "$n"
        echo "cluster_formation.classic_config.nodes.$n = $node_name"
    done
    node_select "$me"
}

# Postdate's own exchange type. 1: enabled instead of the plugin of STACK_PLUGINS_DIR, whose files are there then all the same;
# file: there, and not enabled.
rabbitmq_choose_exchange_type() {
    exchange_type=$(cat "$rabbit/exchange_type" 2>/dev/null)
    exchange_type=${STACK_EXCHANGE_TYPE-$exchange_type}
    printf '%s' "$exchange_type" >"$rabbit/exchange_type"
    [[ $exchange_type ]] || return 0
    "$top/tools/exchange_type.sh" && ln -sfn "$top/build/exchange-type" "$rabbit/exchange-type"
}

rabbitmq_configure() {
    local dir=$rabbit
    mkdir -p -m 700 "$dir" "$dir/mnesia" "$dir/log" "$dir/generated" "$dir/conf.d" || return 1
    if [[ ! -s $dir/.erlang.cookie ]]; then
        (umask 077 && node_cookie >"$dir/.erlang.cookie") || return 1
        chmod 400 "$dir/.erlang.cookie"
    fi
    plugins_dir=$(cat "$dir/plugins_dir" 2>/dev/null)
    if [[ ${STACK_PLUGINS_DIR+set} ]]; then
        plugins_dir=
        if [[ $STACK_PLUGINS_DIR ]]; then
            plugins_dir=$(cd "$STACK_PLUGINS_DIR" 2>/dev/null && pwd) ||
                die "STACK_PLUGINS_DIR=$STACK_PLUGINS_DIR: no such folder"
        fi
    fi
    if [[ $plugins_dir ]]; then
        ls "$plugins_dir"/rabbitmq_delayed_message_exchange* >/dev/null 2>&1 ||
            die "STACK_PLUGINS_DIR=$plugins_dir: rabbitmq_delayed_message_exchange is not in there"
        # RabbitMQ takes a list separated by colons; this name of the folder is free of surprises.
        ln -sfn "$plugins_dir" "$dir/plugins" || return 1
    fi
    printf '%s' "$plugins_dir" >"$dir/plugins_dir"
    rabbitmq_choose_exchange_type || return 1
    # What users are given (plugins-config/), as it is, with what is private to this stack after it: the later file wins.
    # Without its definitions: a broker that starts with them has no guest.
    local enabled=${plugins_dir:+.delayed}
    [[ $exchange_type != 1 ]] || enabled=.exchange
    cp "$top/plugins-config/enabled_plugins$enabled" "$dir/enabled_plugins" || return 1
    cp "$top/plugins-config/rabbitmq.conf" "$dir/rabbitmq.conf" || return 1
    # The demo is to run where the disk is nearly full, too.
    cat >"$dir/conf.d/90-private.conf" <<CONF
listeners.tcp.local = 127.0.0.1:$port_amqp
log.file.level = info
log.connection.level = warning
disk_free_limit.absolute = 100MB
$(node_configure)
CONF
    rabbitmq_wrapper rabbitmq-server "$dir/rabbitmq-server"
    rabbitmq_wrapper rabbitmqctl "$node_ctl"
    rabbitmq_wrapper rabbitmq-plugins "${node_ctl/rabbitmqctl/rabbitmq-plugins}"
    rabbitmq_eval_wrapper "$node_ctl-eval"
}

rabbitmq_label() { if [[ $nodes -eq 1 ]]; then echo RabbitMQ; else echo "RabbitMQ node $node"; fi; }

rabbitmq_started=() # those that this call of stack.sh has started
rabbitmq_launch() {
    rabbitmq_find
    [[ $(rabbitmq_pid) ]] && { say "$(rabbitmq_label) runs already"; return 0; }
    rabbitmq_started[node]=$(now_ms)
    rabbitmq_configure || return 1
    if [[ ! $(epmd_pid) ]]; then
        launch "$STACK_DIR/rabbitmq.log" "$rabbitmq_epmd" -port "$port_epmd" -address 127.0.0.1
        echo "$started" >"$home/rabbitmq/epmd.pid"
        # Listening before Erlang looks for it: else Erlang starts one of its own, which nobody knows of.
        epmd_wait "$started" || return 1
    fi
    ulimit -S -n 65536 2>/dev/null || true
    launch "$rabbit_log" "$rabbit/rabbitmq-server"
    # The scripts exec each other, so this is the Erlang machine's own pid from the beginning.
    echo "$started" >"$rabbit/beam.pid"
}

# One AMQP frame: $1 type, rest the payload in hexadecimal.
amqp_send() {
    local type=$1 hex
    shift
    hex=$(printf '%s' "$@")
    hex=$(printf '%02x0000%08x%sce' "$type" $((${#hex} / 2)) "$hex")
    # shellcheck disable=SC2059
    printf "$(sed 's/../\\x&/g' <<<"$hex")" >&3
}

# Reads one frame; prints class and method in hexadecimal.
amqp_read() {
    local head length
    head=$(timeout 5 head -c 7 <&3 | od -An -vtx1 | tr -d ' \n')
    length=$((16#${head:6:8} + 1))
    timeout 5 head -c "$length" <&3 | od -An -vtx1 | tr -d ' \n' | cut -c1-8
}

# Ready means: guest can log in and open the vhost. Spoken by hand, because rabbitmqctl takes seconds per call.
amqp_login() (
    set -e
    exec 3<>"/dev/tcp/127.0.0.1/$port_amqp"
    printf 'AMQP\x00\x00\x09\x01' >&3
    [[ $(amqp_read) == 000a000a ]] # start
    amqp_send 1 000a000b 00000000 05504c41494e 0000000c 006775657374006775657374 05656e5f5553
    [[ $(amqp_read) == 000a001e ]] # tune
    amqp_send 1 000a001f 07ff 00020000 0000
    amqp_send 1 000a0028 012f 00 00
    [[ $(amqp_read) == 000a0029 ]] # open-ok
    amqp_send 1 000a0032 00c8 00 00000000
    amqp_read
) >/dev/null 2>&1

rabbitmq_wait() {
    [[ ${rabbitmq_started[node]:-} ]] || return 0
    # The nodes of a cluster wait for each other, and share what this machine has.
    local until=$((rabbitmq_started[node] + 120000 * (nodes > 1 ? 3 : 1))) pid
    pid=$(cat "$rabbit/beam.pid")
    until port_is_used "$port_amqp" && amqp_login; do
        if ! pid_lives "$pid" || [[ $(now_ms) -gt $until ]]; then
            say "$(rabbitmq_label) did not start; the end of $rabbit_log:"
            tail -n 12 "$rabbit_log" >&2
            return 1
        fi
        sleep 0.1
    done
    say "$(rabbitmq_label) up in $(since "${rabbitmq_started[node]}")"
}

epmd_wait() {
    local until=$(($(now_ms) + 10000))
    until port_is_used "$port_epmd"; do
        if ! pid_lives "$1" || [[ $(now_ms) -gt $until ]]; then
            say "epmd did not start on port $port_epmd; the end of $STACK_DIR/rabbitmq.log:"
            tail -n 5 "$STACK_DIR/rabbitmq.log" >&2
            return 1
        fi
        sleep 0.02
    done
}

# Ours, and one that Erlang started for this stack (a rabbitmqctl that found none): it has our port in its environment.
epmd_pids() {
    local pid
    epmd_pid
    [[ $port_epmd ]] || return 0
    for pid in $(pgrep -x epmd); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "ERL_EPMD_PORT=$port_epmd" && echo "$pid"
    done
    return 0
}

# Once no node needs it.
epmd_stop_unused() { node_any_pid >/dev/null || epmd_stop; }

epmd_stop() {
    local pids
    pids=$(epmd_pids)
    rm -f "$home/rabbitmq/epmd.pid"
    [[ $pids ]] || return 0
    # shellcheck disable=SC2086
    kill -TERM $pids 2>/dev/null
    # shellcheck disable=SC2086
    wait_gone 5 $pids || kill -KILL $pids 2>/dev/null
}

# The Erlang machine's helpers end by themselves when it does; waited for, so that none outlives a stop.
rabbitmq_family() { local p; for p in $(pgrep -P "$1"); do echo "$p"; rabbitmq_family "$p"; done; }

rabbitmq_stop() {
    local pid family t
    t=$(now_ms)
    pid=$(rabbitmq_pid)
    if [[ $pid ]]; then
        family=$(rabbitmq_family "$pid")
        rabbitmq_ask_to_stop
        wait_gone 60 "$pid" || { kill -KILL "$pid" 2>/dev/null; wait_gone 10 "$pid"; }
        # shellcheck disable=SC2086
        wait_gone 5 $family || kill -KILL $family 2>/dev/null
        say "$(rabbitmq_label) stopped in $(since "$t")"
    fi
    rm -f "$rabbit/beam.pid"
}

rabbitmq_kill() {
    local pid family
    pid=$(rabbitmq_pid)
    [[ $pid ]] || { say "$(rabbitmq_label) does not run"; return 0; }
    family=$(rabbitmq_family "$pid")
    kill -KILL "$pid" 2>/dev/null
    # shellcheck disable=SC2086
    wait_gone 10 "$pid" $family || return 1
    rm -f "$rabbit/beam.pid"
    say "$(rabbitmq_label) killed"
}
