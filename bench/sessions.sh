# bench/sessions.sh - one session that holds thousands of session locks
# shellcheck shell=bash

case_sessions() {
    local names round
    names=$(full_or_quick 16000 2000)
    # time of the processor is measured here
    set_fsync off
    sessions_restart "SET max_locks_per_transaction = 256"
    create_database sessions
    for ((round = 1; round <= ROUNDS; round++)); do
        run psql -X -q -At -F $'\t' -v ON_ERROR_STOP=1 -v "names=$names" -f "$BENCH/sessions.sql" \
            "$(cluster_url main sessions)"
        awk -F '\t' -v round="$round" -v OFS="\t" 'NF == 3 {
            peer = $1 ~ /transaction/ ? "pg_advisory_unlock_shared" : "ten held"
            print "sessions", 1, round, $1, peer, $2, $3, $2 / $3
        }' "$WORK/out" >>"$RESULTS"
    done
    cluster_psql main -c "DROP DATABASE sessions"
    sessions_restart "RESET max_locks_per_transaction"
    set_fsync on
}

sessions_restart() {
    cluster_psql main -c "ALTER SYSTEM $1"
    cluster_stop main
    cluster_start main
}
