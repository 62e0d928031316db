# bench/refused.sh - what 10,000 refused acquires leave
# shellcheck shell=bash

case_refused() {
    local round before after wal
    cluster_psql main -c "ALTER SYSTEM SET autovacuum = off" -c "SELECT pg_reload_conf()" >/dev/null
    for ((round = 1; round <= ROUNDS; round++)); do
        cluster_psql main -c "VACUUM" -c "CHECKPOINT"
        bench_pgbench postgres 1 busy -t 1
        no_clients
        before=$(refused_state)
        bench_pgbench postgres 1 busy -t 10000
        no_clients
        after=$(refused_state)
        record refused 1 "$round" "transaction ids" - "$((${after%% *} - ${before%% *}))" -
        after=${after#* } before=${before#* }
        record refused 1 "$round" "row versions" - "$((${after%% *} - ${before%% *}))" -
        wal=$(wal_bytes "${before#* }" "${after#* }")
        record refused 1 "$round" "WAL bytes" - "$wal" -
    done
    cluster_psql main -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
}

# Prints the next transaction id, the number of row versions written and the end of the
# WAL.
refused_state() {
    cluster_psql main -At -F ' ' -c "SELECT pg_snapshot_xmax(pg_current_snapshot()),
        (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_all_tables),
        pg_current_wal_insert_lsn()"
}
