#!/bin/sh
# config_page.sh write|check PROGRAM PAGE...: the options in each page are what PROGRAM (tools/config_page.c) prints for
# pages that end as this one does. `write` puts them between the page's two markers; `check` fails when a page differs.
set -eu
cd "$(dirname "$0")/.."
what=$1 program=$2
shift 2
new=$(mktemp)
trap 'rm -f "$new" "$new.options"' EXIT

for page; do
    "$program" "${page##*.}" >"$new.options"
    # A manual has no empty lines.
    awk -v options="$new.options" -v manual="${page##*.md}" '
        function gap() { if (!manual) print "" }
        /^(<!--|\.\\") end of options/ { while ((getline line < options) > 0) print line; gap(); inside = 0 }
        !inside { print }
        /^(<!--|\.\\") options:/ { gap(); inside = 1 }' "$page" >"$new"
    if [ "$what" = write ]; then
        cat "$new" >"$page"
    elif ! diff -u "$page" "$new" >&2; then
        echo "$page differs from the table of options: run 'make $page'." >&2
        exit 1
    fi
done
