#!/bin/bash
# dist.sh TARBALL: the sources as a tarball, with its checksum beside it (`make dist`). What Git knows of the checkout, as
# it is now; outside of Git all there is. The same sources give the same bytes: SOURCE_DATE_EPOCH is the time of all files.
set -euo pipefail
tarball=$(realpath -m "$1")
name=$(basename "$tarball" .tar.gz)
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

files() {
    if [[ -e .git ]]; then
        git ls-files -z
    else
        find . \( -path ./build -o -path ./.git -o -path ./tools/commit -o -name __pycache__ \) -prune -o \( -type f -o -type l \) -printf '%P\0'
    fi | LC_ALL=C sort -z
}

same=(--format=ustar --no-recursion --transform="s,^,$name/,S" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX
    --mtime="@$SOURCE_DATE_EPOCH" --file="$folder/tar")
files | tar --create "${same[@]}" --null --files-from=-

# The commit, for what has no Git: tools/version.sh reads it.
commit=$(tools/version.sh -dev)
if [[ $commit != -dev ]]; then
    mkdir "$folder/tools"
    echo "${commit#*+}" >"$folder/tools/commit"
    tar --append "${same[@]}" -C "$folder" tools/commit
fi

mkdir -p "$(dirname "$tarball")"
gzip -9n <"$folder/tar" >"$tarball.new"
mv "$tarball.new" "$tarball"
(cd "$(dirname "$tarball")" && sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256")
