# bench/due.sh - calls for a run that is not due
# shellcheck shell=bash

case_due() {
    local clients
    # a call that is early for its tick would sleep until then
    [ "$(psql_value postgres "SELECT shedlock_next_tick('0 3 * * *', 'Europe/Berlin') > now() + '10 min'")" = t ] ||
        die "due: a tick comes within ten minutes"
    for clients in $CLIENTS; do
        in_turn due "$clients" "calls/s, shedlock_run_begin" "shedlock=rate postgres due_begin" "SELECT 1=rate postgres one"
        in_turn due "$clients" "calls/s, CALL shedlock_run" "shedlock=rate postgres due_call" "SELECT 1=rate postgres one"
    done
}
