# scripts/demo.d/kill.sh - part 2: replicas that are killed while they hold a lock
# shellcheck shell=bash

# Starts replica $1, a session whose statements come from us; its client's
# process id is then in SPAWNED.  The pipe stays open in SESSION.
session_start() {
    local pipe=$WORK/t/$1.pipe
    as_user mkfifo "$pipe"
    exec {SESSION}<>"$pipe"
    client "$1" -At -f "$pipe" >"$WORK/$1.log" 2>&1 {SESSION}<&-
}

# Shows the statement, and types it.
session_say() {
    say "      $1"
    printf '%s\n' "$1" >&"$SESSION"
}

# Kills client $2 with SIGKILL and notes the time for scene $1.  Server and
# client have the same clock here.
kill_replica() {
    local now
    say "  kill -9 $2"
    now=${EPOCHREALTIME/,/.}
    kill -KILL "$2"
    { wait "$2"; } 2>/dev/null || true
    exec {SESSION}>&-
    cluster_psql a -c "UPDATE demo.takeover SET killed_at = to_timestamp($now) WHERE scene = '$1'"
}

# Scene $1: replica $2 holds the session lock, replica $3 waits for it.  With
# $4 the holder is killed in the middle of that statement; without it, between two.
kill_leader() {
    local scene=$1 holder=$2 waiter=$3 statement=${4:-} victim
    cluster_psql a -c "INSERT INTO demo.takeover (scene) VALUES ('$scene')"
    session_start "$holder"
    victim=$SPAWNED
    say "  $holder, process $victim:"
    session_say "SELECT shedlock_acquire_session('leader');"
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'leader' AND state = 'held'"
    if [ -n "$statement" ]; then
        session_say "$statement"
        await "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$holder' AND wait_event = 'PgSleep'"
    fi
    say "  $waiter:"
    show wait-for-leader.sql wait
    client "$waiter" -v "scene=$scene" -f "$PARTS/wait-for-leader.sql" >"$WORK/$waiter.log" 2>&1
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'leader' AND waiters = 1"
    kill_replica "$scene" "$victim"
    wait "$SPAWNED" || { cat "$WORK/$waiter.log"; die "$waiter ended with an error"; }
    cluster_psql a -At -c "SELECT format('  %s has the lock %s s after the kill', '$waiter',
        round(extract(epoch FROM taken_at - killed_at), 3)) FROM demo.takeover WHERE scene = '$scene'"
    say
}

# A lease stands whatever becomes of its holder: another replica tries every
# 100 ms, and gets it when it is over.  It is there before, and begins when the
# lease is taken, so that it is refused also where it takes long to start.
kill_lease_holder() {
    local victim poller try
    {
        say 'DO $$ BEGIN'
        say "    WHILE NOT EXISTS (SELECT FROM shedlock_locks WHERE name = 'import') LOOP PERFORM pg_sleep(0.05); END LOOP;"
        say 'END $$;'
        for ((try = 1; try <= 300; try++)); do
            printf '\\ir %s\n' "$PARTS/try-import.sql"
        done
    } | as_user tee "$WORK/t/poll-import.sql" >/dev/null
    cluster_psql a -c "INSERT INTO demo.takeover (scene) VALUES ('lease')"
    client importer-2 -f "$WORK/t/poll-import.sql" >"$WORK/importer-2.log" 2>&1
    poller=$SPAWNED
    await "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'importer-2' AND wait_event = 'PgSleep'"
    session_start importer-1
    victim=$SPAWNED
    say "  importer-1, process $victim:"
    session_say "SELECT shedlock_acquire_token('import', '8 s');"
    await "SELECT refused > 0 FROM demo.takeover WHERE scene = 'lease'"
    say "  importer-2, every 0.1 s:"
    show try-import.sql try
    kill_replica lease "$victim"
    wait "$poller" || { cat "$WORK/importer-2.log"; die "importer-2 ended with an error"; }
    cluster_psql a -At -c "SELECT format(E'  importer-2 was refused %s times; it has the lock %s s after the kill,\n  %s s after the end of the lease',
        refused, round(extract(epoch FROM taken_at - killed_at), 3),
        round(extract(epoch FROM taken_at - lock_until), 3)) FROM demo.takeover WHERE scene = 'lease'"
    say
}

kills() {
    cat <<'TEXT'
  A session lock is held until its session ends, a lease until its time is over.
  Look at how soon the other replica gets the lock of the one that was killed.

TEXT
    say "  A session lock, between two statements: free at once."
    say
    kill_leader idle leader-1 leader-2
    say "  In the middle of a statement: free when the server next looks for its client."
    say
    kill_leader busy leader-3 leader-4 \
        "SET client_connection_check_interval = '1s'; SELECT pg_sleep(600);"
    say "  A lease: held until its time is over, because its holder may still be at work."
    say
    kill_lease_holder
}
