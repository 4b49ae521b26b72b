#!/bin/bash
# dist.sh TARBALL: the sources as a tarball, with its checksum beside it (`make dist`). What Git knows of the checkout, as
# it is now; outside of Git all there is. The same sources give the same bytes: SOURCE_DATE_EPOCH is the time of all files.
set -euo pipefail
tarball=$(realpath -m "$1")
name=$(basename "$tarball" .tar.gz)
cd "$(dirname "$0")/.."

files() {
    if [[ -e .git ]]; then
        git ls-files -z
    else
        find . \( -path ./build -o -path ./.git -o -name __pycache__ \) -prune -o \( -type f -o -type l \) -printf '%P\0'
    fi | LC_ALL=C sort -z
}

mkdir -p "$(dirname "$tarball")"
files | tar --create --format=ustar --null --no-recursion --files-from=- --transform="s,^,$name/,S" \
    --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" | gzip -9n >"$tarball.new"
mv "$tarball.new" "$tarball"
(cd "$(dirname "$tarball")" && sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256")
