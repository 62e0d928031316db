# scripts/demo.d/service.sh - part 4: a service with ten jobs and three replicas, one of which is killed
# shellcheck shell=bash

# Does the replica with process id $1 hold a lock?
is_at_work() {
    [ "$(cluster_psql a -Atc "SELECT count(*) > 0 FROM shedlock_locks
        WHERE name LIKE 'job-%' AND state = 'held' AND locked_by LIKE '% $1 #%'")" = t ]
}

service() {
    local replica killed_at
    local pids=()
    cat <<'TEXT'
  A service has ten jobs, each due every four seconds, and three replicas, with the package
  for Python.  A replica asks one question, which of my jobs is due, and has four runs
  at work at most:

TEXT
    show service.py service
    for replica in 1 2 3; do
        spawn "PYTHONPATH=$WORK/src/clients/python:$WORK/pg/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1 \
            "PGHOST=$WORK/s/a" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres \
            /usr/bin/python3 "$PARTS/service.py" >"$WORK/service-$replica.log" 2>&1
        pids+=("$SPAWNED")
    done
    await "SELECT count(DISTINCT tick) >= 2 AND count(DISTINCT split_part(locked_by, ' #', 1)) = 3 FROM shedlock_history WHERE name LIKE 'job-%' AND outcome = 'succeeded'"
    # one that stands still ends no run between the look and the kill
    until kill -STOP "${pids[0]}" && pause 0.3 && is_at_work "${pids[0]}"; do
        kill -CONT "${pids[0]}"
        pause 0.2
    done
    killed_at=${EPOCHREALTIME/,/.}
    kill -KILL "${pids[0]}"
    { wait "${pids[0]}"; } 2>/dev/null || true
    say "  kill -9 ${pids[0]}, which is at work.  Its leases last up to four seconds more; then"
    say "  the others begin second attempts:"
    say
    show service-history.sql history
    await "SELECT count(*) > 0 AND bool_and(ended) FROM (SELECT bool_or(attempt = 2 AND ended_at IS NOT NULL) AS ended
        FROM shedlock_history WHERE name LIKE 'job-%' GROUP BY name, tick HAVING bool_or(outcome = 'lost')) t"
    cluster_psql a -P footer=off -f "$PARTS/service-history.sql" | sed '/^$/d; s/ *$//; s/^/      /'
    say
    cluster_psql a -At -c "SELECT format(E'  The last of them began %s s after the kill.\n',
        round(extract(epoch FROM max(started_at)) - $killed_at, 1))
        FROM shedlock_history WHERE name LIKE 'job-%' AND attempt = 2"
    kill -TERM "${pids[@]:1}"
    wait_for_each "${pids[@]:1}" || { cat "$WORK"/service-?.log; die "a replica ended with an error"; }
}
