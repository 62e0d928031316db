# scripts/demo.d/race.sh - part 1: eight replicas race for the same jobs
# shellcheck shell=bash

REPLICAS=8
TICKS=20

# Starts every replica as a client process of its own: one psql session that
# sleeps until each tick.  All get the same first tick, on a whole second.
race_start() {
    local variant replica
    RACE_START=$(($(date +%s) + 2))
    RACE_PIDS=()
    for variant in without with; do
        race_script "$variant" | as_user tee "$WORK/t/race-$variant.sql" >/dev/null
        for ((replica = 1; replica <= REPLICAS; replica++)); do
            client "replica-$replica" -v "replica=$replica" -v "start=$RACE_START" -f "$WORK/t/race-$variant.sql" \
                >"$WORK/race-$variant-$replica.log" 2>&1
            RACE_PIDS+=("$SPAWNED")
        done
    done
}

# Prints the whole life of a replica of variant $1.
race_script() {
    local tick
    for ((tick = 1; tick <= TICKS; tick++)); do
        printf '\\set tick %d\n\\ir %s\n' "$tick" "$PARTS/replica-$1.sql"
    done
}

# Prints a line per tick, as soon as every replica has come to every job.
race_show() {
    local tick
    say "        without shedlock                 with shedlock"
    say "  tick  mail     prices   invoices runs  mail     prices   invoices runs"
    for ((tick = 1; tick <= TICKS; tick++)); do
        race_await "$tick"
        cluster_psql a -At -v "tick=$tick" -f "$PARTS/race-line.sql"
    done
    say
}

# Waits until tick $1 is complete, or the replicas are gone, of which race_end tells.
race_await() {
    local want=$((REPLICAS * 3 * 2)) rows
    while :; do
        rows=$(cluster_psql a -Atc "SELECT count(*) FROM demo.race WHERE tick = $1")
        [ "$rows" -lt "$want" ] || return 0
        kill -0 "${RACE_PIDS[@]}" 2>/dev/null || return 0
        pause 0.1
    done
}

# Waits for the replicas; each must have come through without an error.
race_end() {
    if ! wait_for_each "${RACE_PIDS[@]}"; then
        grep -h -E 'ERROR|FATAL|error' "$WORK"/race-*.log | sort | uniq -c | head -n 20 || true
        die "a replica of the race ended with an error"
    fi
}

race() {
    race_start
    cat <<'TEXT'
  The timers of all eight fire at once.  Without shedlock each replica does the
  work.  With shedlock each replica first runs these statements in psql, whose
  \gset keeps the answer in a variable:

TEXT
    show replica-with.sql send-mail
    show replica-with.sql refresh-prices
    show replica-with.sql write-invoices
    cat <<'TEXT'
  Look at the columns "runs": 24 for each tick without shedlock, three with it, one
  for each job.  A digit is the replica that ran the job, a dot one that skipped it.

TEXT
    race_show
    race_end
}
