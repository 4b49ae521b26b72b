#!/bin/sh
# config_page.sh write|check PROGRAM: the tables of docs/configuration.md are what PROGRAM (tools/config_page.c) prints.
# `write` puts them between the page's two markers; `check` fails when the page differs.
set -eu
cd "$(dirname "$0")/.."
page=docs/configuration.md
new=$(mktemp)
trap 'rm -f "$new" "$new.tables"' EXIT

"$2" >"$new.tables"
awk -v tables="$new.tables" '
    /^<!-- end of options -->/ { while ((getline line < tables) > 0) print line; print ""; inside = 0 }
    !inside { print }
    /^<!-- options:/ { print ""; inside = 1 }' "$page" >"$new"
if [ "$1" = write ]; then
    cat "$new" >"$page"
elif ! diff -u "$page" "$new" >&2; then
    echo "$page differs from the table of options: run 'make $page'." >&2
    exit 1
fi
