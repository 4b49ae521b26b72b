#!/bin/sh
# version.sh RELEASE: the version of these sources. A release is called as it is. What leads to one ("1.0.0-dev") says of
# which commit it is: "1.0.0-dev+20261128.abc1234", with the date of the commit in UTC, and ".changed" where files differ
# from it. Git knows, or the file tools/commit, which `make dist` puts into the tarball. Where neither does, it is RELEASE.
set -eu
case $1 in
*-dev) ;;
*) echo "$1"; exit ;;
esac
cd "$(dirname "$0")/.."
commit=
if [ -e tools/commit ]; then
    commit=$(cat tools/commit)
elif [ -e .git ] && commit=$(TZ=UTC0 git log -1 --date=format-local:%Y%m%d --format=%cd.%H 2>/dev/null); then
    commit=$(printf %.16s "$commit") # a short name of Git's gets longer as the repository grows
    git diff --quiet HEAD -- 2>/dev/null || commit=$commit.changed
fi
echo "$1${commit:++$commit}"
