#!/bin/sh
# Healthy: this container's own gateway keeps its heartbeat in the database. `postdate status` knows it by the host name,
# which is the container's. That RabbitMQ is away does not count: the gateway waits for it, a restart would not help.
status=$(postdate status) || { echo "$status"; exit 1; }
printf '%s\n' "$status" | grep -q "^gateways* .*$(uname -n):[0-9]*  alive\|^  *$(uname -n):[0-9]*  alive" ||
    { echo "no live gateway of $(uname -n)"; printf '%s\n' "$status"; exit 1; }
