# bench/names.sh - a table with a million names compared with one of a thousand
# shellcheck shell=bash

case_names() {
    local clients names
    names=$(full_or_quick 1000000 100000)
    create_database few
    create_database many
    # written like the extension's own writes, without the trigger; all names are free
    cluster_psql main -d many -c "SET session_replication_role = replica" \
        -c "INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token, kind)
            SELECT 'lock-' || n, '2026-01-01', '2026-01-01', 'nobody', 1, NULL
            FROM generate_series(1000, $names - 1) n ORDER BY random()" \
        -c "VACUUM ANALYZE" -c "CHECKPOINT"
    # the same number of names in use, so that both write equally many pages after a
    # checkpoint
    for clients in $CLIENTS; do
        in_turn names "$clients" "pairs/s, 1,000 of them used" "shedlock=rate_of_used $((names / 1000))" \
            "1,000 names=rate few pair"
    done
    in_turn names 1 "pairs/s, all of them used" "shedlock=rate_of_all $names" "1,000 names=rate few pair"
    in_turn names 1 "busy calls/s" "shedlock=rate many busy" "1,000 names=rate few busy"
    cluster_psql main -c "DROP DATABASE few" -c "DROP DATABASE many"
}

# Names far from each other, the same ones each time.
rate_of_used() {
    STRIDE=$1 rate many pair "$2"
}

rate_of_all() {
    NAMES=$1 rate many pair "$2"
}
