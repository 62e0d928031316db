# bench/any.sh - one call for some of many locks
# shellcheck shell=bash

case_any() {
    cluster_psql main -f "$BENCH/any_tables.sql" >/dev/null
    in_turn any 1 "ms, the free one of 100" "shedlock=ms_of postgres any_one" \
        "100 calls of shedlock_acquire=ms_of postgres any_singles" "a statement of 100 calls=ms_of postgres any_statement"
    in_turn any 1 "ms, none of 100 free" "shedlock=ms_of postgres any_none" "SELECT 1=ms_of postgres one"
    in_turn any 1 "ms, none of 1,000 free" "shedlock=ms_of postgres any_none_1000" "SELECT 1=ms_of postgres one"
    in_turn any 1 "ms, 1,000 of 1,000" "shedlock=ms_of postgres any_1000" "1,000 rows updated twice=ms_of postgres any_1000_rows"
    any_batches
}

# Claims 100 of 10,000, and gives them back: locks, and rows that are locked while a
# transaction is open.
any_batches() {
    local clients
    for clients in $CLIENTS; do
        in_turn any "$clients" "batches of 100/s" "shedlock=rate postgres any_batch" \
            "FOR UPDATE SKIP LOCKED=rate postgres any_skip" "UPDATE with SKIP LOCKED=rate postgres any_update"
    done
}
