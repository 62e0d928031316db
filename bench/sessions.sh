# bench/sessions.sh - one session that holds a thousand session locks
# shellcheck shell=bash

case_sessions() {
    local round
    # time of the processor is measured here
    set_fsync off
    create_database sessions
    for ((round = 1; round <= ROUNDS; round++)); do
        run psql -X -q -At -F $'\t' -v ON_ERROR_STOP=1 -v names=1000 -f "$BENCH/sessions.sql" \
            "$(cluster_url main sessions)"
        awk -F '\t' -v round="$round" -v OFS="\t" 'NF == 3 {
            print "sessions", 1, round, $1, "ten held", $2, $3, $2 / $3
        }' "$WORK/out" >>"$RESULTS"
    done
    cluster_psql main -c "DROP DATABASE sessions"
    set_fsync on
}
