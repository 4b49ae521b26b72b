#!/bin/sh
# Delayed jobs of a BullMQ queue; not those that a repeat or a scheduler makes.
redis-cli -u "$REDIS_URL" --raw eval '
local out = {}
for i, id in ipairs(redis.call("zrange", KEYS[1] .. ":delayed", 0, -1)) do
  local job = redis.call("hmget", KEYS[1] .. ":" .. id, "name", "data")
  if job[2] and id:sub(1, 7) ~= "repeat:" then
    local at = redis.call("zscore", KEYS[1] .. ":delayed", id)
    for _, text in ipairs({id, at, job[1], job[2]}) do out[#out + 1] = text end
  end
end
return out' 1 "bull:$1" | python3 -c '
import datetime, json, sys
lines = (line.rstrip("\n") for line in sys.stdin)
for job, at, name, data in zip(lines, lines, lines, lines):
    due = datetime.datetime.fromtimestamp(int(float(at)) // 4096 / 1000, datetime.timezone.utc).isoformat()
    line = {"routing_key": name, "due_at": due, "key": "bullmq/" + sys.argv[1] + "/" + job}
    print(json.dumps(line)[:-1] + ", \"json\": " + data + "}")
' "$1" | postdate schedule --batch -
