#!/bin/sh
# Scheduled tasks of an asynq queue; $2 may be "retry". A task is protobuf: field 1 its type, 2 its payload.
redis-cli -u "$REDIS_URL" --raw eval '
local out = {}
for i, id in ipairs(redis.call("zrange", KEYS[1] .. ARGV[1], 0, -1)) do
  local task = redis.call("hget", KEYS[1] .. "t:" .. id, "msg")
  if task then
    out[#out + 1] = id .. " " .. redis.call("zscore", KEYS[1] .. ARGV[1], id) .. " "
      .. task:gsub(".", function (byte) return string.format("%02x", byte:byte()) end)
  end
end
return out' 1 "asynq:{$1}:" "${2:-scheduled}" | python3 -c '
import base64, datetime, json, sys

def number(data):
    value = shift = 0
    while True:
        byte = data.pop(0)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value

for text in sys.stdin:
    job, at, task = text.split()
    data, fields = list(bytes.fromhex(task)), {}
    while data:
        tag = number(data)
        if tag & 7 == 2:
            size = number(data)
            fields[tag >> 3], data = bytes(data[:size]), data[size:]
        else:
            number(data)
    due = datetime.datetime.fromtimestamp(float(at), datetime.timezone.utc).isoformat()
    print(json.dumps({"routing_key": fields[1].decode(), "due_at": due, "key": "asynq/" + job,
                      "body_base64": base64.b64encode(fields.get(2, b"")).decode()}))
' | postdate schedule --batch -
