# bench/wait.sh - from a release to the answer of the waiter
# shellcheck shell=bash

case_wait() {
    local rounds use
    rounds=$(full_or_quick 200 20)
    compile handover
    handover lease "ms, lease" "$rounds"
    handover session "ms, session lock" "$rounds"
    handover closed "ms, holder disconnects" "$rounds"
    run "$WORK/bin/handover" "$(cluster_url main)" idle "$(full_or_quick 20 3)"
    read -ra use <"$WORK/out"
    record wait 1 1 "idle waiter: ms of CPU a second" - "${use[0]}" -
    record wait 1 1 "idle waiter: wake-ups a second" - "${use[1]}" -
}

handover() {
    run "$WORK/bin/handover" "$(cluster_url main)" "$1" "$3"
    awk -v OFS='\t' -v measure="$2" '{ print "wait", 1, NR, measure, "-", $1, "-", "-" }' "$WORK/out" >>"$RESULTS"
}
