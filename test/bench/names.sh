# test/bench/names.sh - a table with a million names against one with a thousand
# shellcheck shell=bash

case_names() {
    local clients names
    names=$(full_or_quick 1000000 100000)
    create_database few
    create_database many
    # written as the extension writes it: past the trigger, all of them free
    cluster_psql main -d many -c "SET session_replication_role = replica" \
        -c "INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token, kind)
            SELECT 'lock-' || n, '2026-01-01', '2026-01-01', 'nobody', 1, NULL
            FROM generate_series(1000, $names - 1) n ORDER BY random()" \
        -c "VACUUM ANALYZE" -c "CHECKPOINT"
    # the same number of names in use, so that neither writes more pages after
    # a checkpoint than the other
    for clients in $CLIENTS; do
        in_turn names "$clients" "pairs/s, 1,000 of them used" "ours=rate_of_used $((names / 1000))" \
            "1,000 names=rate few pair"
    done
    in_turn names 1 "pairs/s, all of them used" "ours=rate_of_all $names" "1,000 names=rate few pair"
    in_turn names 1 "busy calls/s" "ours=rate many busy" "1,000 names=rate few busy"
    cluster_psql main -c "DROP DATABASE few" -c "DROP DATABASE many"
}

# Names far from each other, the same ones throughout.
rate_of_used() {
    STRIDE=$1 rate many pair "$2"
}

rate_of_all() {
    NAMES=$1 rate many pair "$2"
}
