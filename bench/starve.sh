# bench/starve.sh - connections that callers hold while 30 jobs come due at once
# shellcheck shell=bash

# 90 callers, three for each job, which is due each minute.  Each calls every five seconds, on a
# connection of its own, as replicas do.
case_starve() {
    cluster_psql main -c "SELECT shedlock_job('starve ' || n, '* * * * *') FROM generate_series(0, 29) n" >/dev/null
    ROUNDS=1 in_turn starve 90 "connections, most at once" "shedlock=most_connections starve" "calls that wait for the tick=most_connections starve_wait"
}

# Sets VALUE, the most connections that script $1 has at once, over a full minute.
most_connections() {
    local pid most=0 now
    no_clients
    spawn pgbench -n -C -c 90 -j 2 -R 18 -T "$(full_or_quick 65 20)" -f "$BENCH/$1.sql" "$(cluster_url main postgres)" >"$WORK/out" 2>&1
    pid=$SPAWNED
    while kill -0 "$pid" 2>/dev/null; do
        now=$(psql_value postgres "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'")
        [ "$now" -le "$most" ] || most=$now
        sleep 0.2
    done
    wait "$pid" || { cat "$WORK/out"; die "failed: $1"; }
    VALUE=$most
}
