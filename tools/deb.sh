#!/bin/bash
# deb.sh VERSION TARBALL [ARCHITECTURE]: Debian's packages of that tarball, source and binary, in build/deb (`make deb`), with
# the bill of materials of the programs in them. For the Debian or Ubuntu that it runs on. Installs what they are built with.
# For another architecture (`make deb ARCH=arm64`) only the packages that depend on it are built, without the units.
# DEB_BUILD_OPTIONS is as usual: nocheck leaves out the units.
set -euo pipefail
umask 022 # modes are in the source package
version=$1 tarball=$(realpath "$2")
cd "$(dirname "$0")/.."
top=$PWD
out=build/deb
upstream=${version/-/\~}
source=$out/postdate-$version

# What the control file says, without versions and profiles.
depends() { # field, what sed does first
    sed -n "/^$1:/,/^[^ ]/{s/^$1:/ /;/^ /p}" packaging/debian/control |
        tr ',' '\n' | sed "$2; s/[(<].*//; s/ //g; s/^debhelper-compat$/debhelper/; /^dh-sequence-/d; /^$/d"
}
tools/deps.sh --only build-essential python3
native=$(dpkg --print-architecture)
arch=${3:-$native}
if [[ $arch == "$native" ]]; then
    needed=$(depends Build-Depends '/<cross>/d' && depends Build-Depends-Indep '')
    build=()
elif dpkg-architecture -L | grep -xF -- "$arch" >/dev/null; then
    needed="crossbuild-essential-$arch $(depends Build-Depends "/<!nocheck>/d; s/^ *\(lib[^ ]*\|pkgconf\)/\1:$arch/")"
    build=("--host-arch=$arch" "--build-profiles=cross,nocheck" --build=any)
    export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} nocheck"
else
    echo "deb.sh: ARCH=$arch: dpkg knows no such architecture; what is tested is arm64, on amd64" >&2
    exit 64
fi
# shellcheck disable=SC2086 # names
tools/deps.sh --only $needed

rm -rf "$out"
mkdir -p "$out"
[[ $arch != "$native" ]] || cp "$tarball" "$out/postdate_$upstream.orig.tar.gz"
tar -C "$out" -xf "$tarball"
cp -r "$source/packaging/debian" "$source/debian"
cd "$source"

# VERSION in the Makefile is the one that counts. Each release of Debian or Ubuntu has an entry of its own, a second later than the last, for
# its packages need other ones than those of the next: 1.0.0-1~deb12, as backports are called. One without a number, such as sid, comes
# before all of them.
of=$(
    . /etc/os-release
    id=${ID//[^a-z0-9]/}
    [[ ! ${VERSION_ID:-} ]] && echo "~~${VERSION_CODENAME:-sid}" || echo "~${id/debian/deb}$VERSION_ID"
)
last=$(dpkg-parsechangelog -S Version) change='Built for this release of the system.'
[[ $last == "$upstream"-* ]] || last=$upstream-1 change='Built from the sources; not released.'
export SOURCE_DATE_EPOCH=$((SOURCE_DATE_EPOCH + 1))
{
    printf 'postdate (%s) unstable; urgency=medium\n\n  * %s\n\n' "$last$of" "$change"
    printf ' -- %s  %s\n\n' "$(dpkg-parsechangelog -S Maintainer)" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    cat debian/changelog
} >debian/changelog.new
mv debian/changelog.new debian/changelog

# What was given to this make is not the package's.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
log=$top/$out/build.log
echo "Building the packages (log: $out/build.log) ..."
# Minutes: each step of debhelper is said as it begins.
if ! dpkg-buildpackage "${build[@]}" -us -uc "-j${JOBS:-1}" 2>&1 | tee "$log" | sed -un 's/^   *dh_\(auto_build\|auto_test\|auto_install\|strip\|shlibdeps\|builddeb\)\>.*/  dh_\1/p'; then
    tail -n 40 "$log" >&2
    echo "deb.sh: the packages cannot be built" >&2
    exit 1
fi
package=postdate_$(dpkg-parsechangelog -S Version)_$arch
cd "$top"
tools/sbom.py "$version" "$source/debian/postdate/usr/bin/postdated" "$source/debian/postdate/usr/bin/postdate" >"$out/$package.spdx.json"
rm -rf "$source"
ls -1 "$out"/*.deb "$out"/*.json
