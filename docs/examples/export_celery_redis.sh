#!/bin/sh
# Tasks with an ETA of Celery on Redis: those that workers held (unacked), and those in the queue.
{
    redis-cli -u "$REDIS_URL" --raw hvals unacked
    redis-cli -u "$REDIS_URL" --raw lrange "${1:-celery}" 0 -1
} | python3 -c '
import json, sys
for text in sys.stdin:
    if not text.strip():
        continue
    task = json.loads(text)
    if isinstance(task, list):
        task = task[0]
    headers, properties = task["headers"], task["properties"]
    if not headers.get("eta"):
        continue
    eta = headers.pop("eta").replace("Z", "+00:00")
    line = {"exchange": "", "routing_key": properties["delivery_info"]["routing_key"], "headers": headers,
            "due_at": eta if eta[19:].lstrip(".0123456789") else eta + "+00:00", "key": "celery/" + headers["id"],
            "properties": {"content_type": task["content-type"], "content_encoding": task["content-encoding"],
                           "correlation_id": properties["correlation_id"]}}
    line["body_base64" if properties["body_encoding"] == "base64" else "body"] = task["body"]
    print(json.dumps(line))
' | postdate schedule --batch -
