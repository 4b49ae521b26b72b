#!/bin/bash
# matrix_packages.sh: the Debian packages on an empty system of a Debian; a part of matrix.sh, which reads it.
#
# What is done goes to a layer above the empty system: in one the packages are built, twice, in different folders and at
# different times, and looked at by lintian; in one they are installed with the servers of that Debian, configured by the
# install page, upgraded and purged.
# That one has a network of its own, so the servers have their usual ports. SUITE.packages keeps what was built, for arm64, too.

package_layer() { # suite name: sets root
    new_layer "$1" "$2" || return 1
    printf 'APT::Get::Assume-Yes "true";\n' >"$root/etc/apt/apt.conf.d/zz-matrix"
    # The servers' packages would start system services, and these would be the host's.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d"
    in_layer 'apt-get -qq update && apt-get -qq install make >/dev/null'
}

# An exchange type as a later Erlang would have compiled it: its code says that it has operations which this one does not know.
too_new='
        mkdir /srv/too-new
        cd /srv/next/rabbitmq-postdate-exchange/usr/share/rabbitmq-postdate-exchange
        erl -noshell -eval "
            [Ez] = filelib:wildcard(\"*.ez\"),
            {ok, Files} = zip:extract(Ez, [memory]),
            Later = fun(Beam) ->
                {ok, _, Chunks} = beam_lib:all_chunks(Beam),
                {ok, New} = beam_lib:build_module([case C of
                    {[67,111,100,101], <<Head:8/binary, _:32, Rest/binary>>} -> {[67,111,100,101], <<Head/binary, 1000:32, Rest/binary>>};
                    _ -> C
                end || C <- Chunks]),
                New
            end,
            {ok, _} = zip:create(Ez, [case filename:extension(N) of [46|[98|_]] -> {N, Later(B)}; _ -> {N, B} end || {N, B} <- Files]),
            halt()."
        dpkg-deb --build /srv/next/rabbitmq-postdate-exchange /srv/too-new'

# What they are built for besides this machine. Ubuntu's mirror has no other; in sid the two are not always of one version.
find_cross() { # suite: sets cross
    case $1:$(uname -m) in
    noble:* | resolute:* | *:aarch64) return ;;
    sid:*)
        in_layer "dpkg --add-architecture arm64
            apt-get -qq update
            apt-get -qq --simulate build-dep --arch-only --host-architecture arm64 --build-profiles cross,nocheck $origin/packaging >/dev/null" ||
            { say "$1: what packages for arm64 are built with cannot be installed: they are left out"; return; }
        ;;
    esac
    cross=arm64
}

# The second time as somebody else would. The next version is the same programs, by a higher number.
build_packages() { # suite
    local out=$MATRIX_DIR/$1.packages version next
    package_layer "$1" build && copy_source "$root" || return 1
    find_cross "$1"
    version=$(sed -n 's/^RELEASE := //p' "$top/Makefile")
    next=$(awk -F '[.-]' '{ print $1 "." $2 "." $3 + 1 }' <<<"$version")
    in_layer "
        cd $origin
        mkdir /srv/first /srv/second /srv/next
        for arch in '' $cross; do
            make deb ARCH=\$arch
            mkdir -p /srv/first/\$arch
            mv build/deb/* /srv/first/\$arch
        done
        mv build/dist/* /srv/first
        apt-get -qq install lintian >/dev/null
        lintian --version
        cd /srv/first
        HOME=/nonexistent setpriv --reuid 65534 --regid 65534 --clear-groups lintian --profile debian --fail-on error,warning \$(find . -name '*.changes')
        echo 'lintian: no error, no warning'
        cd $origin
        mkdir -p /srv/somewhere/else
        cp -r . /srv/somewhere/else
        rm -rf /srv/somewhere/else/build
        cd /srv/somewhere/else
        for arch in '' $cross; do
            (umask 077; TZ=Asia/Kathmandu LC_ALL=C DEB_BUILD_OPTIONS=nocheck make deb ARCH=\$arch)
            rm build/deb/*.log build/deb/*.changes build/deb/*.buildinfo
            mkdir -p /srv/second/\$arch
            mv build/deb/* /srv/second/\$arch
        done
        mv build/dist/* /srv/second
        cd /srv/second
        find . -type f | while read -r file; do cmp \"\$file\" \"/srv/first/\$file\"; done
        echo 'Both times the same:'
        find . -type f | sort | xargs sha256sum
        for name in postdate postdate-monitoring rabbitmq-postdate-exchange; do
            dpkg-deb --raw-extract /srv/first/\${name}_*.deb /srv/next/\$name
            sed -i 's/^Version: .*/Version: $next-1/' /srv/next/\$name/DEBIAN/control
            dpkg-deb --build /srv/next/\$name /srv/next
        done
        $too_new
        rm -r /srv/next/postdate /srv/next/postdate-monitoring /srv/next/rabbitmq-postdate-exchange" || return 1
    rm -rf "$out"
    mkdir -p "$out/next" "$out/too-new"
    cp "$root"/srv/first/*.* "$out" && { [[ ! $cross ]] || cp "$root/srv/first/$cross"/*_* "$out"; } && cp "$root"/srv/next/*.deb "$out/next" && cp "$root"/srv/too-new/*.deb "$out/too-new"
}

# What could be left behind: files, without those that apt, the servers and the running system write; and the text of /etc.
traces='
    traces() {
        find / -xdev \( -path /proc -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/cache \
            -o -path /var/lib/apt -o -path /var/lib/postgresql -o -path /var/lib/rabbitmq -o -path /root -o -name __pycache__ \) -prune \
            -o -printf "%y %m %u %g %p\n" | sort
        find /etc -type f ! -name "*-" ! -name .pwd.lock -exec sha256sum {} + | sort -k 2
    }'

install_packages() { # suite
    local began=$EPOCHSECONDS
    package_layer "$1" install || return 1
    cp -r "$MATRIX_DIR/$1.packages" "$root/root/packages" &&
        rm -f "$root/root/packages"/*_"${cross:-none}".* &&
        install -D -m 755 "$top/packaging/debian/tests/deliver" "$root/usr/local/bin/deliver" || return 1
    # With what the package depends on, so that the rest needs no network, and nothing of these is left behind.
    in_layer '
        cd /root/packages
        apt-get -qq install postgresql rabbitmq-server python3-pika sudo iproute2 >/dev/null
        apt-get -qq satisfy "$(dpkg-deb -f postdate_*.deb Depends)" >/dev/null' || return 1
    in_layer "unshare --net bash -euc '$traces
        cd /root/packages
        ip link set lo up
        traces >/root/before
        apt-get install ./postdate_*.deb ./postdate-monitoring_*.deb
        if grep -x postdated /proc/[0-9]*/comm; then exit 1; fi
        deliver fresh configure message leave
        echo \"The first delayed message came within \$((EPOCHSECONDS - $began)) s of an empty system.\"
        apt-get install ./next/postdate_*.deb ./next/postdate-monitoring_*.deb
        dpkg-query -W postdate postdate-monitoring
        deliver fetch
        apt-get install ./rabbitmq-postdate-exchange_*.deb
        deliver exchange
        rabbitmq-plugins enable postdate_exchange
        # It is enabled, and the next version does not load: RabbitMQ starts without it.
        if dpkg --install too-new/*.deb; then exit 1; fi
        if find / -xdev -name \"postdate_exchange-*.ez\" | grep /plugins/; then exit 1; fi
        rabbitmqctl shutdown
        deliver message
        dpkg --install next/rabbitmq-postdate-exchange_*.deb
        rabbitmqctl shutdown
        deliver exchange
        apt-get purge rabbitmq-postdate-exchange
        if grep postdate_exchange /etc/rabbitmq/enabled_plugins; then exit 1; fi
        rabbitmq-plugins list --minimal --silent >/dev/null
        rm /etc/rabbitmq/enabled_plugins
        deliver remove
        apt-get purge postdate-monitoring
        traces >/root/after
        diff /root/before /root/after
        echo \"Purged without a trace.\"'"
}

test_packages() { # suite
    local cross=''
    build_packages "$1" && install_packages "$1"
}
