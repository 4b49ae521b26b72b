#!/bin/sh
# Triggers of Quartz that fire once. Job data is a serialized JobDataMap, or text with useProperties.
psql -XAt "$JOBS_URL" -c "
  select json_build_object('routing_key', t.job_name, 'due_at', to_timestamp(t.next_fire_time / 1000.0),
                           'key', 'quartz/' || t.sched_name || '/' || t.trigger_group || '/' || t.trigger_name,
                           'headers', json_build_object('job_group', t.job_group, 'trigger', t.trigger_name),
                           'body_base64', translate(encode(coalesce(nullif(t.job_data, ''), d.job_data, ''),
                                                           'base64'), E'\n', ''))
    from qrtz_triggers t join qrtz_simple_triggers using (sched_name, trigger_name, trigger_group)
    join qrtz_job_details d using (sched_name, job_name, job_group)
   where repeat_count = 0 and next_fire_time > 0" | postdate schedule --batch -
