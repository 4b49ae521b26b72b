#!/bin/sh
# Cron triggers of Quartz become recurring schedules, all of them or none. "$@" may be --dry-run.
psql -XAt "$JOBS_URL" -c "
  select json_build_object('schedules', json_object_agg(
           'quartz-' || regexp_replace(trigger_group || '.' || trigger_name, '[^A-Za-z0-9._-]', '_', 'g'),
           json_build_object('cron', cron_expression, 'dialect', 'quartz', 'zone', coalesce(time_zone_id, 'UTC'),
                             'routing_key', job_name, 'paused', trigger_state = 'PAUSED',
                             'headers', json_build_object('job_group', job_group),
                             'body_base64', translate(encode(coalesce(nullif(t.job_data, ''), d.job_data, ''),
                                                             'base64'), E'\n', ''))))
    from qrtz_triggers t join qrtz_cron_triggers using (sched_name, trigger_name, trigger_group)
    join qrtz_job_details d using (sched_name, job_name, job_group)" | postdate recur apply - --prefix quartz- "$@"
