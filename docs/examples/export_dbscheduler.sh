#!/bin/sh
# Task data is what its serializer wrote: JSON, or a serialized Java object. Not tasks that recur.
psql -XAt "$JOBS_URL" -c "
  select json_build_object('routing_key', task_name, 'due_at', execution_time,
                           'key', 'db-scheduler/' || task_name || '/' || task_instance,
                           'headers', json_build_object('task_instance', task_instance),
                           'body_base64', translate(encode(coalesce(task_data, ''), 'base64'), E'\n', ''))
    from scheduled_tasks
   where not picked and execution_time is not null and task_instance <> 'recurring'" | postdate schedule --batch -
