# bench/memory.sh - memory of a session after a million calls of each function
# shellcheck shell=bash

case_memory() {
    local calls runs
    calls=$(full_or_quick 1000000 20000)
    runs=$(full_or_quick 100000 2000)
    # time is not measured here
    set_fsync off
    # it has sessions read catalogs again, now and then
    cluster_psql main -c "ALTER SYSTEM SET autovacuum = off" -c "SELECT pg_reload_conf()" >/dev/null
    create_database memory
    run psql -X -q -At -F ' ' -v ON_ERROR_STOP=1 -v "calls=$calls" -v "runs=$runs" -o /dev/null \
        -f "$BENCH/memory.sql" "$(cluster_url main memory)"
    awk -v OFS="\t" '{
        kb = $NF; bytes = $(NF - 1)
        sub(/ [-0-9]+ [-0-9]+$/, "")
        print "memory", 1, 1, "bytes in memory contexts, " $0, "-", bytes, "-", "-"
        print "memory", 1, 1, "kB of the process, " $0, "-", kb, "-", "-"
    }' "$WORK/out" >>"$RESULTS"
    cluster_psql main -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
    cluster_psql main -c "DROP DATABASE memory"
    set_fsync on
}
