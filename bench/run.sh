# bench/run.sh - what shedlock_run adds to the command that it guards
# shellcheck shell=bash

case_run() {
    in_turn run 1 "ms a call" "shedlock=ms_of postgres run" "the bare statement=ms_of postgres one" \
        "acquire_session + release=ms_of postgres run_parts"
    # the same figures again, for the limit
    awk -F '\t' -v OFS='\t' '$1 == "run" && $5 == "the bare statement" {
        print $1, $2, $3, "ms added", "-", $6 - $7, "-", "-" }' "$RESULTS" >"$WORK/t/added"
    cat "$WORK/t/added" >>"$RESULTS"
    in_turn run 1 "ms a call that writes" "shedlock=ms_of postgres run_write" "the bare statement=ms_of postgres write"
    in_turn run 1 "ms a run with a tick" "shedlock=ms_of postgres run_tick" "without=ms_of postgres run_begin_end"
    # neither of them belongs to a call
    cluster_psql main -c "ALTER SYSTEM SET autovacuum = off" -c "ALTER SYSTEM SET wal_writer_delay = '10s'" \
        -c "SELECT pg_reload_conf()" >/dev/null
    run_parts run "a call"
    run_parts run_write "a call that writes"
    run_parts write "the bare statement that writes"
    run_parts run_tick "a run with a tick"
    run_parts run_begin_end "a run without"
    run_parts run_parts "acquire_session + release"
    cluster_psql main -c "ALTER SYSTEM RESET autovacuum" -c "ALTER SYSTEM RESET wal_writer_delay" \
        -c "SELECT pg_reload_conf()" >/dev/null
}

# Counts what the server does for each call.  Arguments: script, name for the measures.
# The cost of measuring is less than a hundredth in so many calls.
run_parts() {
    local before after calls=5000 i part
    local parts=("commits" "WAL flushes" "WAL records" "WAL bytes")
    no_clients
    read -ra before <<<"$(run_counters)"
    bench_pgbench postgres 1 "$1" -t "$calls"
    no_clients
    read -ra after <<<"$(run_counters)"
    for i in "${!parts[@]}"; do
        record run 1 1 "${parts[i]}, $2" - "$(calc "int(100 * (${after[i]} - ${before[i]}) / $calls + 0.5) / 100")" -
    done
}

run_counters() {
    cluster_psql main -At -F ' ' -c "SELECT sum(xact_commit), ($WAL_FLUSHES),
        (SELECT wal_records FROM pg_stat_wal), (SELECT wal_bytes FROM pg_stat_wal) FROM pg_stat_database"
}
