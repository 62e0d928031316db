# scripts/demo.d/cron.sh - parts 3 to 5: pg_cron on two servers
# shellcheck shell=bash

AT_MOST='3 s'
MINUTES=3

# Schedules everything right away, since pg_cron's ticks fall on whole minutes,
# and starts the loop that reschedules the jobs of part 5.
cron_start() {
    cron_pass_minute
    cluster_psql a -v "at_most=$AT_MOST" -f "$PARTS/cron-a.sql" >/dev/null
    cluster_psql b -1 -v "host=$WORK/s" -v "port=${CLUSTER_PORT[a]}" -f "$PARTS/cron-b.sql" >/dev/null
    FIRST_MINUTE=$((($(date +%s) / 60 + 1) * 60))
    cron_reschedule &
    RESCHEDULER=$!
}

# Lets the minute pass when little is left of it: a tick that comes while the
# launchers learn of their jobs would run some of them only.
cron_pass_minute() {
    while [ $(($(date +%s) % 60)) -ge 54 ]; do
        pause 0.2
    done
}

# Runs in the background, whatever the screen shows meanwhile.  A few seconds
# after both variants of the job have begun, they are made anew.
cron_reschedule() {
    await "SELECT count(DISTINCT variant) = 2 FROM demo.run WHERE job = 'rebuild'" 90
    pause 3
    cluster_psql a -f "$PARTS/reschedule.sql" >/dev/null
}

# Shows each minute when its jobs have had their time.
cron_show() {
    local minute
    cat <<TEXT
  vacuum-orders, add-order, divide (by zero), endless (at most $AT_MOST): guarded
  report: scheduled on server A and on server B, both run it in A's database
  rebuild: takes 70 s, and is scheduled anew in its first run

TEXT
    for ((minute = FIRST_MINUTE; minute < FIRST_MINUTE + MINUTES * 60; minute += 60)); do
        cron_countdown $((minute + 6)) "$(env -u TZ date -d "@$minute" +%H:%M)"
        cluster_psql a -At -v "minute=$minute" -v "at_most=$AT_MOST" -f "$PARTS/cron-minute.sql"
        say
    done
    wait "$RESCHEDULER" || die "the job rebuild could not be scheduled again"
    cron_settle
    cron_collect
}

# Waits for what still runs on a busy machine; rebuild takes longer by design.
cron_settle() {
    await "SELECT count(*) = 0 FROM shedlock_history WHERE outcome = 'running' AND name <> 'rebuild'"
    await "SELECT count(*) = 0 FROM cron.job_run_details
        WHERE status NOT IN ('succeeded', 'failed') AND command NOT LIKE '%rebuild%'"
}

# Waits until $1 and tells how long; on a terminal the line counts down.
cron_countdown() {
    local left=$(($1 - $(date +%s)))
    [ "$left" -gt 0 ] || return 0
    if [ ! -t 1 ]; then
        say "  (the ticks of $2 are complete in $left s)"
    fi
    while [ "$left" -gt 0 ]; do
        if [ -t 1 ]; then
            printf '\r  (the ticks of %s are complete in %2d s) ' "$2" "$left"
        fi
        pause 0.5
        left=$(($1 - $(date +%s)))
    done
    if [ -t 1 ]; then
        printf '\r%50s\r' ''
    fi
}

# Takes over what both launchers say they started.
cron_collect() {
    local columns="date_trunc('minute', start_time), status, return_message"
    cluster_psql a -c "TRUNCATE demo.fired" -c "INSERT INTO demo.fired
        SELECT 'A', jobname, $columns FROM cron.job_run_details JOIN demo.job USING (jobid) WHERE start_time IS NOT NULL"
    cluster_psql b -c "COPY (SELECT 'B', jobname, $columns FROM cron.job_run_details JOIN cron.job USING (jobid)
        WHERE start_time IS NOT NULL) TO STDOUT" | cluster_psql a -c "COPY demo.fired FROM STDIN"
}
