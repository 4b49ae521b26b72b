#!/bin/sh
# link.sh: lets Debian's rabbitmq-plugins find what is in /usr/lib/rabbitmq/plugins. From Debian 13 on its /usr/sbin/rabbitmq-plugins
# looks into the folder of its RabbitMQ only, where the server looks into both: it would not find postdate_exchange, and while that is
# enabled it would refuse to enable or disable anything else. So there is a link in that folder. It also removes links of which the
# file is gone. Run it as root after the file, or RabbitMQ, came, changed or went; the package does.
set -eu
plugins=/usr/lib/rabbitmq/plugins
for dir in /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins; do
    [ -d "$dir" ] || continue
    for link in "$dir"/postdate_exchange-*.ez; do
        [ ! -L "$link" ] || [ -e "$plugins/${link##*/}" ] || rm "$link"
    done
    # Of a RabbitMQ that was upgraded the link was all that was left.
    rmdir "$dir" "${dir%/*}" 2>/dev/null || :
done
grep -q 'PLUGINS_DIR=/' /usr/sbin/rabbitmq-plugins 2>/dev/null || exit 0
for file in $plugins/postdate_exchange-*.ez; do
    [ -f "$file" ] || continue
    for dir in /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins; do
        [ ! -d "$dir" ] || ln -sfn "../../../plugins/${file##*/}" "$dir/${file##*/}"
    done
done
