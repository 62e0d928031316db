# scripts/demo.d/cron.sh - parts 6 to 8: pg_cron on two servers
# shellcheck shell=bash

# Schedules everything right away, since pg_cron's ticks fall on whole minutes,
# and starts the loop that reschedules the jobs of part 8.
cron_start() {
    cluster_psql a -f "$PARTS/cron-a.sql" >/dev/null
    cluster_psql b -1 -v "host=$WORK/s/a" -f "$PARTS/cron-b.sql" >/dev/null
    cron_reschedule &
    RESCHEDULER=$!
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
  makes a job that runs its command under a lock; shedlock_job sets a limit.

TEXT
    show cron-a.sql guarded
    cat <<'TEXT'
  Look at how each of them ended.  pg_cron's own history cannot say as much.

TEXT
    cron_countdown "SELECT minute IS NOT NULL FROM demo.first_minute"
    FIRST_MINUTE=$(cluster_psql a -Atc "SELECT extract(epoch FROM minute) FROM demo.first_minute")
    cron_await "$FIRST_MINUTE"
    cron_minute 6 "$FIRST_MINUTE"
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
    cron_minute 7 "$FIRST_MINUTE"
}

cron_long() {
    local minute
    cat <<'TEXT'
  A job that takes longer than its minute, without shedlock and with it:

TEXT
    show cron-rebuild.sql schedule
    wait "$RESCHEDULER" || die "the job rebuild could not be scheduled again"
    cron_minute 8 "$(cron_rebuild_minute)"
    cluster_psql a -At -c "SELECT to_char(at, '\"  At \"HH24:MI:SS\", while both were at work, the demo ran this and made both jobs again:\"')
        FROM demo.rescheduled"
    say
    show reschedule.sql unschedule
    cat <<'TEXT'
  To pg_cron that is a new job.  It does not know that the old run goes on.
  Look at how many runs of it are at work in the next minute.

TEXT
    cron_countdown "SELECT count(*) > 1 FROM demo.run WHERE job = 'rebuild' AND variant = 'without'"
    minute=$(cron_rebuild_minute)
    cron_await "$minute"
    await "SELECT count(*) > 0 FROM cron.job_run_details JOIN demo.job USING (jobid) WHERE jobname = 'rebuild' AND status = 'succeeded'"
    cron_minute 8 "$minute"
    cron_end
}

# Shows what the jobs of part $1 did in minute $2.
cron_minute() {
    cluster_psql a -At -v "part=$1" -v "minute=$2" -f "$PARTS/cron-minute.sql"
    say
}

# Prints the minute in which rebuild last began.
cron_rebuild_minute() {
    cluster_psql a -Atc "SELECT extract(epoch FROM date_trunc('minute', max(started_at))) FROM demo.run WHERE job = 'rebuild'"
}

# Waits until the jobs that end by themselves have done so in minute $1 or later.
cron_await() {
    await "SELECT count(DISTINCT name) = 4 FROM shedlock_history
        WHERE name IN ('vacuum-orders', 'add-order', 'divide', 'endless') AND tick >= to_timestamp($1) AND ended_at IS NOT NULL"
    await "SELECT count(DISTINCT variant || server) FILTER (WHERE variant = 'without') = 2 AND bool_or(variant = 'with')
        FROM demo.run WHERE job = 'report' AND started_at >= to_timestamp($1)"
}

# Waits until query $1 gives true on server A, and tells how long it is to the next whole
# minute: it may have begun already, but not for pg_cron.  On a terminal the line counts down.
cron_countdown() {
    local at end left=$((60 - 10#$(date +%S)))
    [ "$(cluster_psql a -Atc "$1")" != t ] || return 0
    end=$((SECONDS + left))
    at="pg_cron fires at $(env -u TZ date -d '1 min' +%H:%M), the next whole minute: in"
    [ -t 1 ] || say "  ($at $left s)"
    while [ "$left" -gt 0 ] && [ "$(cluster_psql a -Atc "$1")" != t ]; do
        [ ! -t 1 ] || printf '\r  (%s %d s) ' "$at" "$left"
        pause 0.5
        left=$((end - SECONDS))
    done
    [ ! -t 1 ] || printf '\r%70s\r' ''
    await "$1"
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
    until [ "$(cluster_psql b -Atc "SELECT count(*) = 0 FROM cron.job_run_details WHERE status NOT IN ('succeeded', 'failed')")" = t ]; do
        pause 0.1
    done
    cluster_psql a -c "INSERT INTO demo.fired
        SELECT 'A', jobname, $columns FROM cron.job_run_details JOIN demo.job USING (jobid) WHERE start_time IS NOT NULL"
    cluster_psql b -c "COPY (SELECT 'B', jobname, $columns FROM cron.job_run_details JOIN cron.job USING (jobid)
        WHERE start_time IS NOT NULL) TO STDOUT" | cluster_psql a -c "COPY demo.fired FROM STDIN"
}
