# bench/million.sh - one name, acquired and released a million times
# shellcheck shell=bash

case_million() {
    # a wait for the disk in each pair would hide a growing cost
    set_fsync off
    create_database million
    million_tenths "" "$(full_or_quick 100000 5000)"
    session_begin million "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;"
    million_tenths ", old snapshot open" "$(full_or_quick 2000 500)"
    session_end
    # the first pairs prune the table
    bench_pgbench million 1 one_name -t "$(full_or_quick 2000 500)"
    bench_pgbench million 1 one_name -t "$(full_or_quick 20000 2000)"
    record million 1 1 "pairs/s, the snapshot gone" "first tenth" "$VALUE" "$TENTH"
    cluster_psql main -c "DROP DATABASE million"
    set_fsync on
}

# Ten parts, one after the other.  Arguments: a remark for the measures, pairs in each.
million_tenths() {
    local tenth tps=()
    cluster_psql main -d million -c "TRUNCATE shedlock" -c "CHECKPOINT"
    for tenth in {1..10}; do
        bench_pgbench million 1 one_name -t "$2"
        tps+=("$VALUE")
        record million 1 "$tenth" "pairs/s, tenth $tenth$1" - "$VALUE" -
    done
    TENTH=${tps[0]}
    record million 1 1 "pairs/s, last tenth$1" "first tenth" "${tps[9]}" "${tps[0]}"
    record million 1 1 "pages of the table at the end$1" - "$(million_pages shedlock)" -
    record million 1 1 "pages of the index at the end$1" - "$(million_pages shedlock_pkey)" -
}

million_pages() {
    psql_value million "SELECT pg_relation_size('$1') / current_setting('block_size')::int"
}
