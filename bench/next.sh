# bench/next.sh - which of several jobs is due: shedlock_next
# shellcheck shell=bash

case_next() {
    local n round
    # a call that is early for its tick would sleep until then
    [ "$(psql_value postgres "SELECT shedlock_next_tick('0 3 * * *', 'Europe/Berlin') > now() + '10 min'")" = t ] ||
        die "next: a tick comes within ten minutes"

    # Their last tick has been run.
    psql_value postgres "SELECT count(shedlock_job(name, '0 3 * * *', 'Europe/Berlin')), count(shedlock_again(name))
        FROM (SELECT 'bench next ' || n AS name FROM generate_series(1, 1000) n) s" >/dev/null
    psql_value postgres "SELECT count(shedlock_run_end(name, token)) FROM (SELECT 'bench next ' || n AS name FROM generate_series(1, 1000) n) s, shedlock_run_begin(name)" >/dev/null
    cluster_psql main -c VACUUM
    for n in 1 20 100 1000; do
        in_turn next 1 "ms, none of $(printf "%'d" "$n") due" "shedlock=look_at $n" "SELECT 1=ms_of postgres one"
    done
    for ((round = 1; round <= $(full_or_quick 3 1); round++)); do
        idle_waiter "$(full_or_quick 20 3)"
        record next 1 "$round" "idle waiter of 100 jobs: ms of CPU a second" - "$VALUE" -
    done
    for ((round = 1; round <= ROUNDS; round++)); do
        compare_starts "$round"
    done
}

# Prints an array of the names of jobs: the words before their numbers, the first and the last
# number.
jobs_of() {
    seq -s , -f "$1 %.0f" "$2" "$3" | sed 's/.*/{&}/'
}

# Sets VALUE, milliseconds of a look at $1 jobs.
look_at() {
    bench_pgbench postgres "$2" next_look -T "$SLICE" -D "jobs=$(jobs_of "bench next" 1 "$1")"
    VALUE=$(calc "1000 / $VALUE")
}

# Sets VALUE, milliseconds of CPU a second that the server process of a waiter uses, in $1 seconds.
idle_waiter() {
    local waiter pid before
    no_clients
    spawn psql -Xq -c "SELECT FROM shedlock_next('$(jobs_of "bench next" 1 100)', wait => '$(($1 + 2)) s')" "$(cluster_url main)" >"$WORK/out" 2>&1
    waiter=$SPAWNED
    pid=
    until [ -n "$pid" ]; do
        kill -0 "$waiter" || { cat "$WORK/out"; die "failed: the waiter"; }
        pid=$(psql_value postgres "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT FROM shedlock_next%' AND wait_event_type = 'Extension'")
    done
    before=$(cut -d ' ' -f 1 "/proc/$pid/schedstat")
    run sleep "$1"
    VALUE=$(calc "($(cut -d ' ' -f 1 "/proc/$pid/schedstat") - $before) / 1e6 / $1")
    wait "$waiter" || { cat "$WORK/out"; die "failed: the waiter"; }
}

# Thirty jobs come due at one instant, for six callers; sets MEDIAN and WORST, the milliseconds
# from the tick to the begin of a run: script, options of pgbench.
starts() {
    local n tick
    no_clients
    tick=$(psql_value postgres "SELECT to_char(clock_timestamp() + interval '3 s', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')")
    psql_value postgres "SELECT count(shedlock_job('bench start ' || n, 'every 1 day from $tick')) FROM generate_series(0, 29) n" >/dev/null
    bench_pgbench postgres 6 "$1" -T 5 "${@:2}"
    IFS='|' read -r n MEDIAN WORST < <(psql_value postgres "
        SELECT count(*), 1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 1000 * max(late)
        FROM (SELECT extract(epoch FROM started_at - tick)::float8 AS late FROM shedlock_history WHERE name LIKE 'bench start %' AND tick = '$tick') s")
    [ "$n" = 30 ] || die "next: $n runs of 30 jobs"
}

# The two take turns to be the first.
compare_starts() {
    local -A median worst
    local how order=(next each)
    [ $(($1 % 2)) -eq 0 ] || order=(each next)
    for how in "${order[@]}"; do
        case $how in
            next) starts next_wait -D "jobs=$(jobs_of "bench start" 0 29)" ;;
            # each caller calls for each job once a second
            each) starts next_each -D n=0 -R 180 ;;
        esac
        median[$how]=$MEDIAN
        worst[$how]=$WORST
    done
    record next 6 "$1" "ms from a tick to the runs of 30 jobs, median" "shedlock_run_begin for each" "${median[next]}" "${median[each]}"
    record next 6 "$1" "ms from a tick to the runs of 30 jobs, worst" "shedlock_run_begin for each" "${worst[next]}" "${worst[each]}"
}
