#!/bin/sh
psql -XAt "$JOBS_URL" -c "
  select json_build_object('routing_key', t.identifier, 'due_at', j.run_at, 'json', j.payload::jsonb,
                           'key', 'graphile/' || j.id)
    from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id
   where j.locked_at is null and j.attempts < j.max_attempts" | postdate schedule --batch -
