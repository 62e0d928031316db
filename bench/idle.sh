# bench/idle.sh - replicas of a service of whose jobs none is due: what their asking costs
# shellcheck shell=bash

case_idle() {
    local wait
    require_programs python3
    require_postgres python3-psycopg
    # a call that is early for its tick would sleep until then
    [ "$(psql_value postgres "SELECT shedlock_next_tick('0 3 * * *', 'Europe/Berlin') > now() + '10 min'")" = t ] ||
        die "idle: a tick comes within ten minutes"
    for wait in 0 30; do
        idle_replicas "$wait" "$(full_or_quick 120 30)"
        record idle 6 1 "statements a minute of replicas with 20 jobs each, wait $wait s" - "$STATEMENTS" -
        record idle 6 1 "their connections, wait $wait s" - "$CONNECTIONS" -
    done
}

# Sets STATEMENTS and CONNECTIONS of six replicas, which ask with that wait, in so many seconds.
idle_replicas() {
    local n before jobs=() replicas=()
    no_clients
    for n in {1..20}; do
        jobs+=("job=idle-$n" work=look:1 "schedule=0 3 * * *" time_zone=Europe/Berlin)
    done
    for n in {1..6}; do
        spawn "PYTHONPATH=$WORK/src/clients/python:$WORK/pg/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1 \
            "PGHOST=$WORK/s/main" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres \
            /usr/bin/python3 "$WORK/src/test/clients/worker.py" "wait=$1" \
            "${jobs[@]}" >"$WORK/replica-$n" 2>&1
        replicas+=("$SPAWNED")
    done
    until [ "$(psql_value postgres "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%shedlock_next(%' AND pid <> pg_backend_pid()")" = 6 ]; do
        run sleep 0.5
    done
    # a server process that waits tells its statistics afterwards
    run sleep $((15 + $1))
    before=$(commits)
    run sleep "$2"
    STATEMENTS=$(calc "($(commits) - $before) * 60 / $2")
    CONNECTIONS=$(psql_value postgres "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shedlock'")
    kill -TERM "${replicas[@]}"
    wait "${replicas[@]}" || { cat "$WORK"/replica-?; die "failed: a replica"; }
}

# Prints how many statements have been committed; one that asks for it is counted with the rest.
commits() {
    psql_value postgres "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"
}
