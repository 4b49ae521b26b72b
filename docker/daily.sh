#!/bin/sh
# daily.sh: what cron does elsewhere, for a container of its own. At the start and then once a day, at DAILY_AT (UTC,
# HH:MM), partitions are made ahead of time, and the window is moved on where this version has `postdate feed`.
# A failure is said and tried again after RETRY_S; nothing is late because of it.
set -u
at=${DAILY_AT:-03:17}
retry_s=${RETRY_S:-300}
case $at in
[01][0-9]:[0-5][0-9] | 2[0-3]:[0-5][0-9]) ;;
*) echo "daily: DAILY_AT=$at is not a time of day (allowed: 00:00 to 23:59)" >&2; exit 64 ;;
esac

# A shell that waits for a child hears signals only afterwards, unless it uses wait.
trap 'kill "$sleeper" 2>/dev/null; exit 0' TERM INT
sleeper=
pause() { sleep "$1" & sleeper=$!; wait "$sleeper"; }

run() {
    postdate migrate -q || return
    if postdate --help 2>&1 | grep -q '^  *feed '; then
        postdate feed
    fi
}

while :; do
    if run; then
        now=$(date -u +%s)
        next=$(date -u -d "today $at" +%s)
        [ "$next" -gt "$now" ] || next=$(date -u -d "tomorrow $at" +%s)
        echo "daily: done, next at $(date -u -d "@$next" +%Y-%m-%dT%H:%MZ)"
        pause $((next - now))
    else
        echo "daily: failed with exit code $?, again in $retry_s s" >&2
        pause "$retry_s"
    fi
done
