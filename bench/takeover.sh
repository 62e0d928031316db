# bench/takeover.sh - the holder of a session lock is killed
# shellcheck shell=bash

case_takeover() {
    compile handover
    run "$WORK/bin/handover" "$(cluster_url main)" takeover "$(full_or_quick 60 10)"
    # three lines make a round
    awk -F '\t' -v OFS='\t' '
        { ms[$1] = $2 }
        function row(shedlock,  peer) {
            peer = "pg_try_advisory_lock"
            print "takeover", 1, NR / 3, "ms, " shedlock, peer, ms[shedlock], ms[peer], sprintf("%.4g", ms[shedlock] / ms[peer])
        }
        NR % 3 == 0 { row("waiting"); row("polling") }' "$WORK/out" >>"$RESULTS"
}
