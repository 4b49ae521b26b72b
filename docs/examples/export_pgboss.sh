#!/bin/sh
psql -XAt "$JOBS_URL" -c "
  select json_build_object('routing_key', name, 'due_at', start_after, 'json', data, 'key', 'pgboss/' || id)
    from pgboss.job where state in ('created', 'retry')" | postdate schedule --batch -
