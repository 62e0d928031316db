# bench/problems.sh - what is wrong with a thousand jobs, among many names
# shellcheck shell=bash

case_problems() {
    local names
    names=$(full_or_quick 1000000 10000)
    cluster_start problems "shared_preload_libraries = 'pg_cron'" "fsync = off"
    cluster_psql problems -1 -v runs=10000 -v "names=$names" -v jobs=1000 -f "$BENCH/history_data.sql" >/dev/null
    problems_measure 0 "all well"
    cluster_psql problems -f "$BENCH/problems_begin.sql" >/dev/null
    problems_measure 100 "100 problems"
    cluster_stop problems
    as_user rm -rf "$WORK/problems"
}

# Arguments: how many problems there must be, name for the measures.
problems_measure() {
    local n
    cluster_psql problems -c "VACUUM ANALYZE" -c CHECKPOINT
    n=$(cluster_psql problems -Atc "SELECT format('%s, %s', (SELECT count(*) FROM shedlock_problems), (SELECT count(*) FROM shedlock_news()))")
    [ "$n" = "$1, $1" ] || die "problems: there are $n instead of $1"
    SERVER=problems in_turn problems 1 "ms, shedlock_problems, $2" "shedlock=ms_of postgres problems"
    SERVER=problems in_turn problems 1 "ms, shedlock_news, $2" "shedlock=ms_of postgres problems_news"
}
