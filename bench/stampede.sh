# bench/stampede.sh - 100 connections want one free lock at the same instant
# shellcheck shell=bash

case_stampede() {
    compile stampede
    run "$WORK/bin/stampede" "$(cluster_url main)" 100 "$(full_or_quick 200 20)"
    # three lines make a round
    awk -F '\t' -v OFS='\t' '
        function row(measure, peer, shedlock, other, ratio) {
            print "stampede", 100, round, measure, peer, shedlock, other, ratio
        }
        function compare(peer) {
            row("ms to the last answer", peer, ms["shedlock"], ms[peer], sprintf("%.4g", ms["shedlock"] / ms[peer]))
        }
        { winners[$1] = $2; ms[$1] = $3 }
        NR % 3 == 0 {
            round++
            row("winners, most", "-", winners["shedlock"], "-", "-")
            row("winners, least", "-", winners["shedlock"], "-", "-")
            row("winners, most", "ShedLock, upsert", winners["shedlock"], winners["ShedLock, upsert"], "-")
            compare("ShedLock, upsert")
            compare("pg_try_advisory_lock")
        }' "$WORK/out" >>"$RESULTS"
}
