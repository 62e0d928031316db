# scripts/demo.d/hosts.sh - part 3: hosts that run a script, one of which vanishes
# shellcheck shell=bash

# Starts host $1, a session of processes that begins with script $2; its number is then in
# SPAWNED.
host_start() {
    local programs
    programs=$WORK/dest$("$PG_BIN/pg_config" --bindir)
    [ -x "$programs/shedlock" ] || die "the program shedlock was not built"
    spawn "HOST=$1" "PATH=$programs:$PARTS:/usr/bin:/bin" "PGHOST=$WORK/s/a" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres \
        setsid "$2" >"$WORK/$1.log" 2>&1
}

# Prints the processes of session $1.  A minimal Debian has no pgrep.
host_processes() {
    # other processes come and go
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } |
        awk -v session="$1" '{ pid = $1; sub(/.*\) /, ""); if ($4 == session && $1 != "Z") print pid }'
}

# Kills all processes of session $1, and prints their names.
host_kill() {
    local pids pid deadline=$(($(date +%s) + 60))
    # its first process may still have to begin the session
    until pids=$(host_processes "$1") && [ -n "$pids" ]; do
        [ "$(date +%s)" -lt "$deadline" ] || die "the host has no process to kill: session $1"
        pause 0.1
    done
    for pid in $pids; do
        printf '  kill -9 %-7s  %s\n' "$pid" "$(cat "/proc/$pid/comm" 2>/dev/null || true)"
    done
    # one of them may have ended meanwhile
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null || true
    { wait "$1"; } 2>/dev/null || true
}

# Waits until file $1 has a line that matches $2.
host_await() {
    local deadline=$(($(date +%s) + 300))
    until grep -qs "$2" "$WORK/$1"; do
        [ "$(date +%s)" -lt "$deadline" ] || { tail -n 5 "$WORK"/{host,watcher}-?.log; die "this did not come into $1: $2"; }
        pause 0.1
    done
}

# A tick that comes in the middle of the part would end the attempts of the one before.
pass_midnight() {
    while [ $(($(date +%s) % 86400)) -ge 86310 ]; do
        pause 1
    done
}

hosts() {
    local host other killed_at
    local -A session
    cat <<'TEXT'
  Two hosts have the same line in their crontabs.  The program shedlock declares the job,
  which changes nothing once it is declared, begins a run, and keeps its lock while the
  script is at work.  Here both hosts are processes of this machine, and run the line
  every second:

TEXT
    show host.sh crontab
    pass_midnight
    for host in host-1 host-2; do
        host_start "$host" host.sh
        session[$host]=$SPAWNED
    done
    host_await backup.csv ',1,2,.*[0-9]$'
    host=$(sed -n '1s/,.*//p' "$WORK/backup.csv")
    other=host-$((3 - ${host#host-}))
    host_await "$other.log" 'held by'
    say "  $host runs backup.sh.  $other does not run it, and is told:"
    say
    pause 0.2
    # an earlier try may have met the run's beginning
    grep -m 1 -A 1 'held by' "$WORK/$other.log" | sed 's/^/      /'
    say
    say "  $host loses its power, with all that runs on it:"
    say
    killed_at=${EPOCHREALTIME/,/.}
    host_kill "${session[$host]}"
    say
    cat <<TEXT
  Its lease lasts up to six seconds more.  Then the run is lost, and $other begins
  the second attempt.  Look at what the history has of both:

TEXT
    show host-history.sql history
    host_await backup.csv ',2,10,.*[0-9]$'
    await "SELECT count(*) = 1 FROM shedlock_history WHERE name = 'nightly-backup' AND outcome = 'succeeded'"
    cluster_psql a -P footer=off -f "$PARTS/host-history.sql" | sed '/^$/d; s/ *$//; s/^/      /'
    say
    cluster_psql a -At -c "SELECT format(E'  %s began the second attempt %s s after the kill.\n', '$other',
        round(extract(epoch FROM started_at) - $killed_at, 1))
        FROM shedlock_history WHERE name = 'nightly-backup' AND attempt = 2"
    host_kill "${session[$other]}" >/dev/null
    cluster_psql a -c "\\copy demo.backup FROM '$WORK/backup.csv' (FORMAT csv)"
}
