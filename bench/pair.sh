# bench/pair.sh - acquire and release of free locks among 1,000 names
# shellcheck shell=bash

case_pair() {
    local clients
    for clients in $CLIENTS; do
        in_turn pair "$clients" "pairs/s" "shedlock=rate postgres pair" \
            "ShedLock, UPDATE=rate postgres/peer pair_shedlock" \
            "ShedLock, upsert=rate postgres/peer pair_upsert" \
            "two UPDATEs=rate postgres/peer pair_bare"
    done
    # the same each time, except for what the server writes on its own
    ROUNDS=2 in_turn pair 1 "WAL bytes a pair" "shedlock=wal_of_pair postgres pair" \
        "ShedLock, UPDATE=wal_of_pair postgres/peer pair_shedlock" \
        "two UPDATEs=wal_of_pair postgres/peer pair_bare"
}

# Sets VALUE.  The warm-up is needed because the first change of a page after a checkpoint
# writes the whole page.
wal_of_pair() {
    local before transactions=3000
    bench_pgbench "$1" "$3" "$2" -t "$transactions"
    before=$(wal_position)
    bench_pgbench "$1" "$3" "$2" -t "$transactions"
    VALUE=$(calc "($(wal_position) - $before) / $transactions")
}
