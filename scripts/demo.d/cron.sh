# scripts/demo.d/cron.sh - parts 4 to 6: pg_cron on two servers
# shellcheck shell=bash

# Schedules everything right away, since pg_cron's ticks fall on whole minutes,
# and starts the loop that reschedules the jobs of part 6.
cron_start() {
    cron_pass_minute
    cluster_psql a -f "$PARTS/cron-a.sql" >/dev/null
    cluster_psql b -1 -v "host=$WORK/s/a" -f "$PARTS/cron-b.sql" >/dev/null
    FIRST_MINUTE=$(cron_next_minute "$(date +%s)")
    cron_reschedule &
    RESCHEDULER=$!
}

cron_next_minute() {
    say $((($1 / 60 + 1) * 60))
}

# Lets the minute pass when little is left of it: a tick that comes while the
# launchers learn of their jobs would run some of them only.
cron_pass_minute() {
    while [ $(($(date +%s) % 60)) -ge 54 ]; do
        pause 0.2
    done
}

# Runs in the background, whatever the screen shows meanwhile.  A few seconds
# after both variants of the job have begun, they are made again.
cron_reschedule() {
    await "SELECT count(DISTINCT variant) = 2 FROM demo.run WHERE job = 'rebuild'"
    pause 3
    cluster_psql a -f "$PARTS/reschedule.sql" >/dev/null
}

cron_guarded() {
    cat <<'TEXT'
  Four jobs, each minute.  The demo ran these statements when it began.  Each
  makes a job that runs its command under a lock.

TEXT
    show cron-a.sql guarded
    cat <<'TEXT'
  Look at how each of them ended.  pg_cron's own history cannot say as much.

TEXT
    cron_await "$FIRST_MINUTE" 6 2
    cron_minute 4 "$FIRST_MINUTE"
}

cron_two_servers() {
    cat <<'TEXT'
  One job, without shedlock and with it.  Server A has it, for its database:

TEXT
    show cron-a.sql report
    say "  Server B has it, too, for the same database, as after a move or a failover:"
    say
    show cron-b.sql report
    cat <<'TEXT'
  Look at which server's pg_cron ran it.  Both have fired.

TEXT
    cron_minute 5 "$FIRST_MINUTE"
}

cron_long() {
    local minute
    cat <<'TEXT'
  A job that takes longer than its minute, without shedlock and with it:

TEXT
    show cron-rebuild.sql schedule
    wait "$RESCHEDULER" || die "the job rebuild could not be scheduled again"
    cron_minute 6 "$FIRST_MINUTE"
    cluster_psql a -At -c "SELECT to_char(at, '\"  At \"HH24:MI:SS\", while both were at work, the demo ran this and made both jobs again:\"')
        FROM demo.rescheduled"
    say
    show reschedule.sql unschedule
    cat <<'TEXT'
  To pg_cron that is a new job.  It does not know that the old run goes on.
  Look at how many runs of it are at work in the next minute.

TEXT
    minute=$(cron_next_minute "$(cluster_psql a -Atc "SELECT floor(extract(epoch FROM at)) FROM demo.rescheduled")")
    cron_await "$minute" 12 4
    await "SELECT count(*) > 1 FROM demo.run WHERE job = 'rebuild' AND variant = 'without'"
    await "SELECT count(*) > 0 FROM cron.job_run_details JOIN demo.job USING (jobid) WHERE jobname = 'rebuild' AND status = 'succeeded'"
    cron_minute 6 "$minute"
    cron_end
}

# Shows what the jobs of part $1 did in minute $2.
cron_minute() {
    cluster_psql a -At -v "part=$1" -v "minute=$2" -f "$PARTS/cron-minute.sql"
    say
}

# Waits for minute $1, and until the jobs that end by themselves have done so $2
# times on server A and $3 times on server B.
cron_await() {
    local ended="count(*) FROM cron.job_run_details WHERE status IN ('succeeded', 'failed') AND command NOT LIKE '%rebuild%'"
    cron_countdown "$1"
    await "SELECT $2 <= $ended"
    until [ "$(cluster_psql b -Atc "SELECT $3 <= $ended")" = t ]; do
        pause 0.1
    done
}

# Waits until $1 and tells how long; on a terminal the line counts down.
cron_countdown() {
    local at left=$(($1 - $(date +%s)))
    [ "$left" -gt 0 ] || return 0
    at="pg_cron fires at $(env -u TZ date -d "@$1" +%H:%M), the next whole minute: in"
    [ -t 1 ] || say "  ($at $left s)"
    while [ "$left" -gt 0 ]; do
        [ ! -t 1 ] || printf '\r  (%s %d s) ' "$at" "$left"
        pause 0.5
        left=$(($1 - $(date +%s)))
    done
    [ ! -t 1 ] || printf '\r%70s\r' ''
}

# Lets nothing fire any more, waits for what still runs, and takes over what both
# launchers say they started.
cron_end() {
    local columns="date_trunc('minute', start_time), status, return_message"
    cluster_psql a -c "UPDATE cron.job SET active = false" -c "INSERT INTO demo.rebuilt DEFAULT VALUES"
    cluster_psql b -c "UPDATE cron.job SET active = false"
    await "SELECT count(*) = 0 FROM shedlock_history WHERE outcome = 'running'"
    await "SELECT count(*) = 0 FROM demo.run WHERE job = 'rebuild' AND ended_at IS NULL"
    await "SELECT count(*) = 0 FROM cron.job_run_details WHERE status NOT IN ('succeeded', 'failed') AND command NOT LIKE '%rebuild%'"
    cluster_psql a -c "INSERT INTO demo.fired
        SELECT 'A', jobname, $columns FROM cron.job_run_details JOIN demo.job USING (jobid) WHERE start_time IS NOT NULL"
    cluster_psql b -c "COPY (SELECT 'B', jobname, $columns FROM cron.job_run_details JOIN cron.job USING (jobid)
        WHERE start_time IS NOT NULL) TO STDOUT" | cluster_psql a -c "COPY demo.fired FROM STDIN"
}
