# scripts/demo.d/watch.sh - part 5: a job that nobody calls, and two hosts that watch
# shellcheck shell=bash

watch() {
    local host
    local pids=()
    cat <<'TEXT'
  A job is declared, and nobody calls it: its service was never deployed.

TEXT
    show send-report.sql declare
    say "  Two hosts watch.  One of them works; the other one waits to take over:"
    say
    show watcher.sh watch
    cat <<'TEXT'
  It runs a command for each problem of a job, and once more when that is over.  A line
  of JSON says which.  The command could send a mail; here it adds the line to a file:

TEXT
    show tell.sh tell
    pass_midnight
    for host in watcher-1 watcher-2; do
        host_start "$host" watcher.sh
        pids+=("$SPAWNED")
    done
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'shedlock-watch' AND state = 'held' AND waiters = 1"
    cluster_psql a -f "$PARTS/send-report.sql" >/dev/null
    host_await told 'send-report.*begun'
    say "  Look at what the file has of that job.  Then the job is run:"
    say
    show report.sql run
    cluster_psql a -f "$PARTS/report.sql"
    host_await told 'send-report.*over'
    # what was told twice would follow at once
    pause 1
    kill -TERM "${pids[@]}"
    wait_for_each "${pids[@]}" || { cat "$WORK"/watcher-?.log; die "a watcher ended with an error"; }
    cluster_psql a -c "\\copy demo.told FROM '$WORK/told' (FORMAT csv, DELIMITER E'\\t', QUOTE E'\\b')"
    cluster_psql a -At -c "SELECT format('      %s  %s  %-5s  %s', to_char(to_timestamp(at), 'HH24:MI:SS.MS'),
        news ->> 'name', news ->> 'state', news ->> 'message') FROM demo.told WHERE news ->> 'name' = 'send-report' ORDER BY at"
    say
}
