# bench/idle.sh - replicas of a service of whose jobs none is due: what their asking costs, and
# how soon they begin when all are
# shellcheck shell=bash

case_idle() {
    local wait
    require_programs python3
    require_postgres python3-psycopg
    for wait in 0 30; do
        idle_replicas "$wait" "$(full_or_quick 120 30)"
        record idle 6 1 "statements a minute of replicas with 20 jobs each, wait $wait s" - "$STATEMENTS" -
        record idle 6 1 "their connections, wait $wait s" - "$CONNECTIONS" -
        record idle 6 1 "ms from a tick to their runs of 20 jobs, median, wait $wait s" - "$MEDIAN" -
        record idle 6 1 "ms from a tick to their runs of 20 jobs, worst, wait $wait s" - "$WORST" -
    done
}

# Sets STATEMENTS and CONNECTIONS of six replicas, which ask with that wait, in so many seconds; then
# MEDIAN and WORST, milliseconds from the tick at which all of their jobs are due to the begin of a run.
idle_replicas() {
    local n tick before jobs=() replicas=()
    no_clients
    tick=$(psql_value postgres "SELECT to_char(clock_timestamp() + interval '1 s' * ($2 + $1 + 50), 'YYYY-MM-DD\"T\"HH24:MI:SSOF')")
    for n in {1..20}; do
        jobs+=("job=idle-$1-$n" work=look:1 "schedule=every 1 day from $tick")
    done
    for n in {1..6}; do
        spawn "PYTHONPATH=$WORK/src/clients/python:$WORK/pg/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1 \
            "PGHOST=$WORK/s/main" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres \
            /usr/bin/python3 "$WORK/src/test/clients/worker.py" "wait=$1" "${jobs[@]}" >"$WORK/replica-$n" 2>&1
        replicas+=("$SPAWNED")
    done
    until [ "$(psql_value postgres "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%shedlock_next(%' AND pid <> pg_backend_pid()")" = 6 ]; do
        kill -0 "${replicas[@]}" || { cat "$WORK"/replica-?; die "failed: a replica"; }
        run sleep 0.5
    done
    # a server process that waits tells its statistics afterwards
    run sleep $((15 + $1))
    before=$(commits)
    run sleep "$2"
    STATEMENTS=$(calc "($(commits) - $before) * 60 / $2")
    CONNECTIONS=$(psql_value postgres "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shedlock'")
    until IFS='|' read -r n MEDIAN WORST < <(psql_value postgres "
        SELECT count(*), 1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 1000 * max(late)
        FROM (SELECT extract(epoch FROM started_at - tick)::float8 AS late FROM shedlock_history WHERE name LIKE 'idle-$1-%' AND outcome = 'succeeded') s") &&
        [ "$n" = 20 ]; do
        kill -0 "${replicas[@]}" || { cat "$WORK"/replica-?; die "failed: a replica"; }
        run sleep 0.5
    done
    kill -TERM "${replicas[@]}"
    wait_for_each "${replicas[@]}" || { cat "$WORK"/replica-?; die "failed: a replica"; }
}

# Prints how many statements have been committed; one that asks for it is counted with the rest.
commits() {
    psql_value postgres "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"
}
