#!/bin/sh
# Schedules a message under a name of one's own, moves it, shows it and cancels it.
set -eu
url=${POSTDATE_HTTP:-http://127.0.0.1:8480}
json='Content-Type: application/json'

answer=$(curl -sS --fail-with-body "$url/v1/messages" -H "$json" \
    -d '{"routing_key":"order.reminder","delay":"15m","key":"order-42","body":"still in the cart"}')
id=$(printf '%s' "$answer" | sed 's/.*"id":"\([^"]*\)".*/\1/')

curl -sS --fail-with-body -X PATCH "$url/v1/messages/$id" -H "$json" -d '{"delay":"1h"}'
curl -sS --fail-with-body "$url/v1/messages/$id?view=full"
curl -sS --fail-with-body -X DELETE "$url/v1/messages?key=order-42"
