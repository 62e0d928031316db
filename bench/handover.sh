# bench/handover.sh - a crowd of clients waits in turn for the same locks
# shellcheck shell=bash

case_handover() {
    compile crowd
    cluster_start crowd "max_connections = 1020" "fsync = off"
    cluster_psql crowd -c "CREATE EXTENSION shedlock"
    crowds 100 1
    crowds 300 1
    crowds 1000 100 ", 100 names"
    cluster_stop crowd
}

# All measures of so many clients that wait for so many names.
crowds() {
    local clients=$1 names=$2 of=${3:-} round i measure
    local -A ours peers
    for ((round = 1; round <= ROUNDS; round++)); do
        for i in $((round % 2)) $(((round + 1) % 2)); do
            if [ "$i" = 0 ]; then
                crowd "$clients" "$names" "SELECT shedlock_acquire(\$1, '1 min', wait => '5 min')" \
                    "SELECT shedlock_release(\$1)"
                ours=([rate]=${FIGURES[0]} [switches]=${FIGURES[1]} [cpu]=${FIGURES[2]} [overtaken]=${FIGURES[3]})
            else
                crowd "$clients" "$names" "SELECT true FROM pg_advisory_lock(\$1::bigint)" \
                    "SELECT pg_advisory_unlock(\$1::bigint)"
                peers=([rate]=${FIGURES[0]} [switches]=${FIGURES[1]} [cpu]=${FIGURES[2]} [overtaken]=${FIGURES[3]})
            fi
        done
        for measure in "rate hand-overs/s" "switches context switches a hand-over" "cpu ms of CPU a hand-over" \
            "overtaken overtaken, of 1,000"; do
            record handover "$clients" "$round" "${measure#* }$of" pg_advisory_lock \
                "${ours[${measure%% *}]}" "${peers[${measure%% *}]}"
        done
    done
}

# Sets FIGURES, what crowd.c prints.
crowd() {
    run "$WORK/bin/crowd" "$(cluster_url crowd)" "$1" "$2" "$SLICE" "$3" "$4"
    read -ra FIGURES <"$WORK/out"
    # those who waited have gone
    until [ "$(cluster_psql crowd -At -c "SELECT count(*) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")" = 0 ]; do
        run sleep 0.1
    done
}
