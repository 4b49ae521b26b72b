#!/bin/sh
# What waits in Sidekiq's set "schedule"; for failed jobs, its set "retry".
redis-cli -u "$REDIS_URL" --raw zrange "${1:-schedule}" 0 -1 withscores | python3 -c '
import datetime, json, sys
for job, at in zip(sys.stdin, sys.stdin):
    it = json.loads(job)
    due = datetime.datetime.fromtimestamp(float(at), datetime.timezone.utc).isoformat()
    line = {"routing_key": it["queue"], "due_at": due, "key": "sidekiq/" + it["jid"]}
    print(json.dumps(line)[:-1] + ", \"json\": " + job.strip() + "}")
' | postdate schedule --batch -
