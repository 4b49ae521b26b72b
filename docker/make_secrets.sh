#!/bin/sh
# make_secrets.sh: makes the passwords of the compose project, once, and gives each service a volume with only what it
# needs. Runs as root in a container without network, of the image of PostgreSQL, which has a shell and is needed anyway.
# Nothing of it is in the repository, an image or an environment.
#
#   /secrets             the passwords themselves; no other service has this volume
#   /for/postgres        superuser, postdate
#   /for/rabbitmq        definitions with hashes
#   /for/gateway         the two URLs
#   /for/app             the AMQP URL of the example
set -eu
umask 077

password() { # name: 192 random bits
    [ -s "/secrets/$1" ] || { head -c 24 /dev/urandom | basenc --base16 >"/secrets/$1.new"; mv "/secrets/$1.new" "/secrets/$1"; }
    cat "/secrets/$1"
}
# Readable for whatever user that service runs as; the volume is what keeps others away.
give() { cat >"$1.new"; chmod 444 "$1.new"; mv "$1.new" "$1"; }

super=$(password postgres-superuser)
sql=$(password postgres-postdate)
amqp=$(password rabbitmq-postdate)
app=$(password rabbitmq-app)

printf '%s' "$super" | give /for/postgres/superuser
printf '%s' "$sql" | give /for/postgres/postdate
printf '%s\n' "$amqp" | /make_definitions.sh /templates/definitions.json | give /for/rabbitmq/10-postdate.json
printf '%s\n' "$app" | /make_definitions.sh /templates/definitions-app.json | give /for/rabbitmq/20-app.json
printf 'postgresql://postdate:%s@postgres/postdate\n' "$sql" | give /for/gateway/postgres_url
printf 'amqp://postdate:%s@rabbitmq:5672/%%2f\n' "$amqp" | give /for/gateway/amqp_url
printf 'amqp://app:%s@rabbitmq:5672/%%2f\n' "$app" | give /for/app/amqp_url
chmod 755 /for/*
echo "secrets: ready"
