# test/bench/takeover.sh - the client that holds a session lock is killed
# shellcheck shell=bash

case_takeover() {
    compile handover
    run "$WORK/bin/handover" "$(cluster_url main)" takeover "$(full_or_quick 60 10)"
    # three lines are a round
    awk -F '\t' -v OFS='\t' '
        { ms[$1] = $2 }
        function row(ours,  peer) {
            peer = "pg_try_advisory_lock"
            print "takeover", 1, NR / 3, "ms, " ours, peer, ms[ours], ms[peer], sprintf("%.4g", ms[ours] / ms[peer])
        }
        NR % 3 == 0 { row("waiting"); row("polling") }' "$WORK/out" >>"$RESULTS"
}
