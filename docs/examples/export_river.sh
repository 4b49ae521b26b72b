#!/bin/sh
psql -XAt "$JOBS_URL" -c "
  select json_build_object('routing_key', kind, 'due_at', scheduled_at, 'json', args, 'key', 'river/' || id,
                           'headers', json_build_object('queue', queue))
    from river_job where state in ('available', 'scheduled', 'retryable')" | postdate schedule --batch -
