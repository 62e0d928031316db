# bench/hosts.sh - what the program shedlock costs a fleet of hosts, and their server
# shellcheck shell=bash

case_hosts() {
    compile launch
    # what is counted is this database's
    create_database hosts
    HOSTS_DB=$(cluster_url main hosts)
    PROGRAM=$WORK/dest$("$PG_BIN/pg_config" --bindir)/shedlock
    [ -x "$PROGRAM" ] || die "hosts: the program was not built"
    cluster_psql main -c "ALTER SYSTEM SET autovacuum = off" -c "SELECT pg_reload_conf()" >/dev/null
    hosts_together
    hosts_minute
    hosts_waiting
    hosts_true
    cluster_psql main -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
    no_clients
    cluster_psql main -c "DROP DATABASE hosts"
}

# Twenty at once on one free lock, which the first one keeps for a minute.
hosts_together() {
    local round
    for ((round = 1; round <= ROUNDS; round++)); do
        hosts_count_begin
        run "$WORK/bin/launch" 20 1 "$PROGRAM" --dbname "$HOSTS_DB" --name "lock-$round" --at-least 1min -- true
        cp "$WORK/out" "$WORK/t/together"
        hosts_count_end
        record hosts 20 "$round" "of twenty at once: run" - "$(grep -c '^0' "$WORK/t/together")" -
        record hosts 20 "$round" "of twenty at once: exit status 75" - "$(grep -c '^75' "$WORK/t/together")" -
        hosts_record "$round" "twenty at once"
        run "$WORK/bin/launch" 20 1 psql -X -d "$HOSTS_DB" -c "SELECT 1"
        ! grep -qv '^0' "$WORK/out" || die "hosts: psql failed"
        paste <(grep '^75' "$WORK/t/together" | hosts_spread) <(hosts_spread <"$WORK/out") |
            while IFS=$'\t' read -r which ms _ peers; do
                record hosts 20 "$round" "ms to exit status 75, $which" "twenty psql, SELECT 1" "$ms" "$peers"
            done
    done
}

# Prints the least, median and most time of the lines of launch.
hosts_spread() {
    sort -n -k 2 | awk -v OFS='\t' '{ ms[NR] = $2 }
        END { print "first", ms[1]; print "median", (ms[int((NR + 1) / 2)] + ms[int(NR / 2) + 1]) / 2; print "last", ms[NR] }'
}

# A run that is a little longer than its lease extends it six times, and a short one never.
hosts_minute() {
    local lease begun long short i
    lease=$(full_or_quick 60 6)
    # the first change of a page after a checkpoint writes the whole page
    cluster_psql main -c "CHECKPOINT"
    hosts_run "$lease" 0
    hosts_count_begin
    hosts_run "$lease" 0
    hosts_count_end
    hosts_record 1 "a run"
    short=("${COUNTED[@]}")

    hosts_count_begin
    hosts_run "$lease" "$(calc "$lease * 18 / 16")" &
    long=$!
    run sleep "$(calc "$lease / 16")"
    begun=$(hosts_backend_ns)
    run sleep "$lease"
    record hosts 1 1 "a run at work, a minute: ms of CPU of its session" - \
        "$(calc "($(hosts_backend_ns) - $begun) / 1e6")" -
    wait "$long"
    hosts_count_end
    for i in "${!COUNTED[@]}"; do
        COUNTED[i]=$(calc "${COUNTED[i]} - ${short[i]}")
    done
    hosts_record 1 "a run at work, a minute"
}

# A run: its lease, seconds.
hosts_run() {
    as_user "$PROGRAM" --dbname "$HOSTS_DB" --name lock-100 --lease "$1" -- sleep "$2"
}

# Another client holds this lock for a week.  An hour is a multiple of what is measured.
hosts_waiting() {
    local begun seconds waiter short i
    seconds=$(full_or_quick 30 5)
    # a read may prune the page that it reads
    hosts_refused 0
    hosts_count_begin
    hosts_refused 0
    hosts_count_end
    hosts_record 1 "a call that is refused"
    short=("${COUNTED[@]}")
    hosts_count_begin
    hosts_refused "$((seconds + 2))" &
    waiter=$!
    run sleep 1
    begun=$(hosts_backend_ns)
    run sleep "$seconds"
    record hosts 1 1 "an hour of --wait: ms of CPU of its session" - \
        "$(calc "($(hosts_backend_ns) - $begun) / 1e6 * 3600 / $seconds")" -
    wait "$waiter"
    hosts_count_end
    for i in "${!COUNTED[@]}"; do
        COUNTED[i]=$(calc "(${COUNTED[i]} - ${short[i]}) * 3600 / ($seconds + 2)")
    done
    hosts_record 1 "an hour of --wait"
}

# Waits so many seconds in vain.
hosts_refused() {
    local status=0
    as_user "$PROGRAM" --dbname "$HOSTS_DB" --name busy --wait "$1" -- true || status=$?
    [ "$status" -eq 75 ] || die "hosts: exit status $status"
}

# Time and CPU of a command without one, after that of the bare command.
hosts_true() {
    local measure
    for measure in "2 ms, -- true" "3 ms of CPU, -- true"; do
        HOSTS_COLUMN=${measure%% *}
        in_turn hosts 1 "${measure#* }" "shedlock=launch_of shedlock" "true=launch_of true" \
            "flock FILE true=launch_of flock" "psql, SELECT 1=launch_of psql"
    done
    # the same figures again
    awk -F '\t' -v OFS='\t' '$1 == "hosts" && $4 ~ /-- true/ && $5 == "true" {
        print $1, $2, $3, $4 ", added", "-", $6 - $7, "-", "-" }' "$RESULTS" >"$WORK/t/added"
    cat "$WORK/t/added" >>"$RESULTS"
}

# Sets VALUE to the median of column HOSTS_COLUMN of launch in thirty turns.
launch_of() {
    local command
    case $1 in
        shedlock) command=("$PROGRAM" --dbname "$HOSTS_DB" --name lock-200 -- true) ;;
        true) command=(true) ;;
        flock) command=(flock "$WORK/t/flock" true) ;;
        psql) command=(psql -X -d "$HOSTS_DB" -c "SELECT 1") ;;
    esac
    run "$WORK/bin/launch" 1 30 "${command[@]}"
    ! grep -qv '^0' "$WORK/out" || die "hosts: $1 failed"
    # shellcheck disable=SC2034
    VALUE=$(cut -f "$HOSTS_COLUMN" "$WORK/out" | sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }')
}

#
# What the server does
#

HOSTS_COUNTERS=("transactions" "WAL bytes" "WAL flushes" "ms of CPU of all sessions")

# Sets BEFORE: the counters, and the position of the WAL.
hosts_count_begin() {
    no_clients
    read -ra BEFORE <<<"$(hosts_counters)"
}

# Sets COUNTED: what has been added to each of HOSTS_COUNTERS since then.
hosts_count_end() {
    local after
    no_clients
    read -ra after <<<"$(hosts_counters)"
    COUNTED=("$((after[0] - BEFORE[0]))" "$(wal_bytes "${BEFORE[1]}" "${after[1]}")"
        "$((after[2] - BEFORE[2]))" "$((after[3] - BEFORE[3]))")
}

# The server's first process has the times of all sessions that have ended.
hosts_counters() {
    local ticks
    ticks=$(sed 's/.*) //' "/proc/$(head -n 1 "$WORK/main/postmaster.pid")/stat" | awk '{ print $12 + $13 + $14 + $15 }')
    say "$(cluster_psql main -At -F ' ' -c "SELECT xact_commit + xact_rollback, pg_current_wal_insert_lsn(),
        ($WAL_FLUSHES) FROM pg_stat_database WHERE datname = 'hosts'")" \
        "$((ticks * 1000 / $(getconf CLK_TCK)))"
}

# Adds COUNTED to the results: round, what was done.  CPU is counted in hundredths of a
# second, which is too coarse for one program.  The flushes in a wait are the server's own.
hosts_record() {
    local i clients=1 measures=3
    case $2 in
        "twenty at once") clients=20 measures=4 ;;
        "an hour of --wait") measures=2 ;;
    esac
    for ((i = 0; i < measures; i++)); do
        record hosts "$clients" "$1" "$2: ${HOSTS_COUNTERS[i]}" - "${COUNTED[i]}" -
    done
}

# Prints nanoseconds that the program's session has had on a processor.
hosts_backend_ns() {
    local pid
    pid=$(psql_value postgres "SELECT pid FROM pg_stat_activity WHERE application_name = 'shedlock'")
    cut -d ' ' -f 1 "/proc/$pid/schedstat"
}
