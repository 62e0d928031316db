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

session_say() {
    printf '%s\n' "$1" >&"$SESSION"
}

# Kills client $2 with SIGKILL and notes the time for scene $1.  Server and
# client have the same clock here.
kill_replica() {
    local now=${EPOCHREALTIME/,/.}
    kill -KILL "$2"
    { wait "$2"; } 2>/dev/null || true
    exec {SESSION}>&-
    cluster_psql a -c "UPDATE demo.takeover SET killed_at = to_timestamp($now) WHERE scene = '$1'"
}

# Scene $1: replica $2 holds the session lock, replica $3 waits for it.  With
# $4 the holder is killed in the middle of that statement, else between two.
kill_leader() {
    local scene=$1 holder=$2 waiter=$3 statement=${4:-} victim
    cluster_psql a -c "INSERT INTO demo.takeover (scene) VALUES ('$scene')"
    session_start "$holder"
    victim=$SPAWNED
    session_say "SELECT shedlock_acquire_session('leader');"
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'leader' AND state = 'held'"
    if [ -n "$statement" ]; then
        session_say "$statement"
    fi
    client "$waiter" -v "scene=$scene" -f "$PARTS/wait-for-leader.sql" >"$WORK/$waiter.log" 2>&1
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'leader' AND waiters = 1"
    pause 0.5
    cluster_psql a -At -c "SELECT format('  %s holds the session lock \"%s\", %s waits for it',
        application_name, name, '$waiter') FROM shedlock_locks WHERE name = 'leader'"
    say "  kill -9 $victim"
    kill_replica "$scene" "$victim"
    wait "$SPAWNED" || { cat "$WORK/$waiter.log"; die "$waiter ended with an error"; }
    cluster_psql a -At -c "SELECT format('  %s has it %s s after the kill', '$waiter',
        round(extract(epoch FROM taken_at - killed_at), 3)) FROM demo.takeover WHERE scene = '$scene'"
    say
}

# A lease stands whatever becomes of its holder: another replica tries every
# 100 ms, and gets it when it is over.
kill_lease_holder() {
    local victim poller try
    session_start lessee-1
    victim=$SPAWNED
    session_say "SELECT shedlock_acquire_token('import', '8 s');"
    await "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'import'"
    cluster_psql a -c "INSERT INTO demo.takeover (scene, lock_until)
        SELECT 'lease', lock_until FROM shedlock_locks WHERE name = 'import'"
    for ((try = 1; try <= 300; try++)); do
        printf '\\ir %s\n' "$PARTS/try-import.sql"
    done | as_user tee "$WORK/t/poll-import.sql" >/dev/null
    client lessee-2 -f "$WORK/t/poll-import.sql" >"$WORK/lessee-2.log" 2>&1
    poller=$SPAWNED
    pause 1
    say "  lessee-1 holds the lease \"import\" for 8 s, lessee-2 tries to get it every 0.1 s"
    say "  kill -9 $victim"
    kill_replica lease "$victim"
    wait "$poller" || { cat "$WORK/lessee-2.log"; die "lessee-2 ended with an error"; }
    cluster_psql a -At -c "SELECT format('  lessee-2 was refused %s times, and has it %s s after the kill, %s s after the end of the lease',
        refused, round(extract(epoch FROM taken_at - killed_at), 3),
        round(extract(epoch FROM taken_at - lock_until), 3)) FROM demo.takeover WHERE scene = 'lease'"
    say
}

kills() {
    say "  While its client is busy elsewhere:"
    kill_leader idle leader-1 leader-2
    say "  In the middle of a statement; the server looks for its client every second:"
    kill_leader busy leader-3 leader-4 \
        "SET client_connection_check_interval = '1s'; SELECT pg_sleep(600);"
    say "  While it holds a lease:"
    kill_lease_holder
}
