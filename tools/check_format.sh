#!/bin/sh
# check_format.sh FILE ...: fails, and says where, when clang-format 14 would write a file differently.
clang-format-14 --dry-run --Werror "$@" || { echo "Run 'make format'." >&2; exit 1; }
