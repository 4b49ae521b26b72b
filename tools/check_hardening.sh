#!/bin/bash
# check_hardening.sh PROGRAM ...: does each have what the compiler and linker flags were to give it? Reads the files with
# readelf (binutils, which gcc brings). Prints what is missing; exit 1 when there is any, 64 usage, 69 no readelf.
set -u
[[ $# -gt 0 ]] || { echo "usage: check_hardening.sh PROGRAM ..." >&2; exit 64; }
command -v readelf >/dev/null || { echo "check_hardening: readelf is not installed" >&2; exit 69; }
bad=0

# want TEXT PATTERN / never TEXT PATTERN: in $facts
want() { grep -qE -- "$2" <<<"$facts" || { echo "$program: $1" >&2; bad=1; }; }
never() { ! grep -qE -- "$2" <<<"$facts" || { echo "$program: $1" >&2; bad=1; }; }

for program; do
    facts=$(LC_ALL=C readelf -hldn --wide "$program" 2>&1 && LC_ALL=C readelf --dyn-syms --wide "$program" 2>&1) ||
        { echo "$program: ${facts##*$'\n'}" >&2; bad=1; continue; }
    want "not position-independent (-fPIE -pie)" 'Type: +DYN .*Position-Independent'
    want "no RELRO (-z relro)" '^ +GNU_RELRO '
    want "symbols are bound late, so RELRO is not full (-z now)" '\(FLAGS(_1)?\) .*(BIND_NOW|NOW)'
    want "no statement about the stack (-z noexecstack)" '^ +GNU_STACK '
    never "the stack is executable" '^ +GNU_STACK .* (RWE|R E|E) +0x'
    never "memory that is both writable and executable" '^ +LOAD .* RWE '
    never "text relocations" '\(TEXTREL\)'
    never "a search path for libraries (rpath)" '\((RPATH|RUNPATH)\)'
    want "no stack protector (-fstack-protector-strong)" ' __stack_chk_fail(@|$)'
    want "no fortified functions (-D_FORTIFY_SOURCE)" ' __[a-z]+_chk(@|$)'
    # Not by the program's note: that says only what all of it has, and Debian's start files (crt1.o) have none.
    [[ $facts != *X86-64* || $(objdump -d "$program" | grep -c -m 50 endbr64) -eq 50 ]] ||
        { echo "$program: no control-flow protection (-fcf-protection=full)" >&2; bad=1; }
done
exit $bad
