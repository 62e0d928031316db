# bench/busy.sh - acquire of a lock that another client holds
# shellcheck shell=bash

case_busy() {
    local clients
    for clients in $CLIENTS; do
        in_turn busy "$clients" "calls/s" "shedlock=rate postgres busy" \
            "SELECT 1=rate postgres one" \
            "ShedLock, upsert=rate postgres/peer busy_upsert" \
            "ShedLock, later tries=rate postgres/peer busy_update"
    done
}
