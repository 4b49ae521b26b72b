#!/bin/sh
# check_format.sh FILE ...: fails, and says where, when clang-format 14 would write a file differently, or has torn a type
# from its name.
clang-format-14 --dry-run --Werror "$@" || { echo "Run 'make format'." >&2; exit 1; }
! grep -nHE '^ +(const |unsigned )*(bool|char|int|[a-z0-9_]+_t|(struct|enum) [a-z0-9_]+)$' "$@" || {
    echo "The comment behind is too long: put it above." >&2
    exit 1
}
