# The private Postgres of stack.sh. Sourced, not run.
# shellcheck shell=bash disable=SC2154

# Names the socket; only a server that is told to listen on TCP, too, needs another one.
postgres_port=${STACK_POSTGRES_PORT:-5432}

postgres_find() {
    postgres_bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    [[ -x $postgres_bin/initdb ]] || postgres_bin=$(dirname "$(command -v initdb)" 2>/dev/null)
    [[ -x $postgres_bin/initdb ]] || die "PostgreSQL's programs (initdb, postgres) are not installed: run 'make deps'"
}

postgres_pid() { pid_if "$home/postgres/data/postmaster.pid" "$home/postgres/data"; }

postgres_url() { echo "postgresql:///postdate?host=$home/postgres/run&port=$postgres_port&user=postdate"; }

# The stack's superuser; the tests' own URL is the ordinary role `postdate`.
postgres_sql() { "$postgres_bin/psql" -h "$home/postgres/run" -p "$postgres_port" -U postgres -qAtX -v ON_ERROR_STOP=1 "$@"; }

postgres_init() {
    local dir=$home/postgres
    [[ -e $dir/data/PG_VERSION && ! -e $dir/incomplete ]] && return
    rm -rf "$dir"
    mkdir -m 700 "$dir" && touch "$dir/incomplete" && mkdir -m 700 "$dir/run" "$dir/data" || return 1
    [[ $(id -u) -ne 0 ]] || chown -R "$(ordinary_user):" "$dir"
    (cd / && as_ordinary "$postgres_bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --no-locale --no-sync) \
        </dev/null >>"$STACK_DIR/postgres.log" 2>&1 || { tail -n 5 "$STACK_DIR/postgres.log" >&2; return 1; }
    echo "include 'stack.conf'" >>"$dir/data/postgresql.conf"
    # fsync stays on: what the tests learn about durability must be true.
    cat >"$dir/data/stack.conf" <<CONF
listen_addresses = ''
port = $postgres_port
unix_socket_directories = '$dir/run'
shared_buffers = '128MB'
max_connections = 300
max_wal_size = '2GB'
dynamic_shared_memory_type = mmap # in its own folder, so that nothing of a killed one stays behind
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %a@%d '
CONF
    chmod 644 "$dir/data/stack.conf"
    rm -f "$dir/incomplete"
}

# Sessions of a postmaster that was killed end by themselves when they notice; two generations must never overlap.
# They work in the data folder, by which they are recognised.
postgres_sessions() {
    # shellcheck disable=SC2016
    as_ordinary sh -c 'for d in /proc/[0-9]*; do
        [ "$(readlink "$d/cwd")" = "$1" ] && echo "${d##*/}"; done' sh "$home/postgres/data" 2>/dev/null
}

postgres_end_leftovers() {
    [[ -e $home/postgres/data/postmaster.pid ]] || return 0
    local pids
    pids=$(postgres_sessions)
    # shellcheck disable=SC2086
    wait_gone 3 $pids || { kill -KILL $pids 2>/dev/null; wait_gone 5 $pids; }
}

postgres_launch() {
    postgres_find
    postgres_started=
    [[ $(postgres_pid) ]] && { say "Postgres runs already"; return 0; }
    postgres_started=$(now_ms)
    postgres_init || { say "Postgres: initdb failed, see $STACK_DIR/postgres.log"; return 1; }
    postgres_end_leftovers
    # Left by a kill -9, their pid may belong to another process by now: Postgres would take that for its old self.
    rm -f "$home/postgres/data/postmaster.pid" "$home/postgres/run"/.s.PGSQL.*
    local program=("$postgres_bin/postgres" -D "$home/postgres/data") user
    if [[ $(id -u) -eq 0 ]]; then
        user=$(ordinary_user)
        program=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups -- "${program[@]}")
    fi
    launch "$STACK_DIR/postgres.log" env LC_ALL=C "${program[@]}"
    postgres_child=$started
}

postgres_wait() {
    [[ $postgres_started ]] || return 0
    # Crash recovery after a kill -9 may take its time.
    local until=$((postgres_started + 120000))
    until "$postgres_bin/pg_isready" -q -h "$home/postgres/run" -p "$postgres_port"; do
        if ! pid_lives "$postgres_child" || [[ $(now_ms) -gt $until ]]; then
            say "Postgres did not start; the end of $STACK_DIR/postgres.log:"
            tail -n 8 "$STACK_DIR/postgres.log" >&2
            return 1
        fi
        sleep 0.05
    done
    if [[ $(postgres_sql -d postgres -c "select 1 from pg_database where datname = 'postdate'") != 1 ]]; then
        # Tests make databases and roles of their own.
        postgres_sql -d postgres -c "create role postdate login createdb createrole" \
            -c "create database postdate owner postdate" || return 1
    fi
    say "Postgres up in $(since "$postgres_started")"
}

postgres_stop() {
    local pid children t
    t=$(now_ms)
    pid=$(postgres_pid)
    [[ $pid ]] || return 0
    kill -INT "$pid" 2>/dev/null # fast: ends sessions, writes a checkpoint
    if ! wait_gone 60 "$pid"; then
        children=$(pgrep -P "$pid")
        # shellcheck disable=SC2086
        kill -KILL "$pid" $children 2>/dev/null
        # shellcheck disable=SC2086
        wait_gone 10 "$pid" $children
    fi
    say "Postgres stopped in $(since "$t")"
}

postgres_kill() {
    local pid children
    pid=$(postgres_pid)
    [[ $pid ]] || { say "Postgres does not run"; return 0; }
    children=$(pgrep -P "$pid")
    # shellcheck disable=SC2086
    kill -KILL "$pid" $children 2>/dev/null
    # shellcheck disable=SC2086
    wait_gone 10 "$pid" $children || return 1
    say "Postgres killed"
}
