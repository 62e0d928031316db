# test/bench/calls.sh - instructions of a prepared statement, counted by callgrind
# shellcheck shell=bash
#
# The server runs in single-user mode, without a client and its messages.  Two numbers of
# calls are counted; the difference is the cost of the calls alone, the same on each run
# of one build.

case_calls() {
    local n
    n=$(full_or_quick 500 100)
    require_programs valgrind
    create_database calls
    # used before, like most locks; each statement has its own names
    cluster_psql main -d calls -At \
        -c "SELECT count(*) FROM generate_series(1, $((4 * n))) n, shedlock_acquire('lock-' || n, '1 min')" \
        -c "SELECT count(*) FROM generate_series(1, $((4 * n))) n, shedlock_release('lock-' || n)" \
        -c "VACUUM FREEZE shedlock" >/dev/null
    cluster_stop main

    local one busy acquire release daily often due upsert update unlock prepared acquired
    # only the peers use this table: a change of the path makes the server plan again
    prepared="SET search_path = peer, public;
PREPARE one AS SELECT 1;
PREPARE busy AS SELECT shedlock_acquire('busy', '10 min');
PREPARE acquire(text) AS SELECT shedlock_acquire(\$1, '10 min');
PREPARE release(text) AS SELECT shedlock_release(\$1);
PREPARE daily AS SELECT shedlock_tick('0 3 * * *', 'Europe/Berlin');
PREPARE often AS SELECT shedlock_tick('*/5 * * * *');
PREPARE due AS SELECT token FROM shedlock_run_begin('due', schedule => '0 3 * * *', time_zone => 'Europe/Berlin');
PREPARE upsert AS $(calls_peer busy_upsert);
PREPARE update(text) AS $(calls_peer pair_shedlock 1);
PREPARE unlock(text) AS $(calls_peer pair_shedlock 2);"
    calls_count one "$n" "$prepared" "EXECUTE one;"
    one=$VALUE
    calls_count busy "$n" "$prepared" "EXECUTE busy;"
    busy=$VALUE
    calls_count acquire "$n" "$prepared" "EXECUTE acquire('lock-%d');"
    acquire=$VALUE
    acquired=$(calls_lines "$((2 * n + 1))" "$((4 * n))" "EXECUTE acquire('lock-%d');")
    calls_count release "$n" "$prepared"$'\n'"$acquired" "EXECUTE release('lock-%d');" "$((2 * n))"
    release=$VALUE
    calls_count daily "$n" "$prepared" "EXECUTE daily;"
    daily=$VALUE
    calls_count often "$n" "$prepared" "EXECUTE often;"
    often=$VALUE
    calls_count due "$n" "$prepared" "EXECUTE due;"
    due=$VALUE
    calls_count upsert "$n" "$prepared" "EXECUTE upsert;"
    upsert=$VALUE
    # one name for these: its acquire expires at once, and its versions stay in one page,
    # as in a table that has been in use for a while
    calls_count update "$n" "$prepared" "EXECUTE update('lock-1');"
    update=$VALUE
    calls_count unlock "$n" "$prepared" "EXECUTE unlock('lock-1');"
    unlock=$VALUE
    record calls 1 1 "instructions, busy" "SELECT 1" "$busy" "$one"
    record calls 1 1 "instructions, acquire" "SELECT 1" "$acquire" "$one"
    record calls 1 1 "instructions, release" "SELECT 1" "$release" "$one"
    record calls 1 1 "instructions, shedlock_tick, daily in Berlin" "SELECT 1" "$daily" "$one"
    record calls 1 1 "instructions, shedlock_tick, every 5 minutes" "SELECT 1" "$often" "$one"
    record calls 1 1 "instructions, run_begin that is not due" "SELECT 1" "$due" "$one"
    record calls 1 1 "instructions, busy" "ShedLock, upsert" "$busy" "$upsert"
    record calls 1 1 "instructions, acquire" "ShedLock" "$acquire" "$update"
    record calls 1 1 "instructions, release" "ShedLock" "$release" "$unlock"
    cluster_start main
}

# Prints statement $2 of a pgbench file, with its name as the parameter.
calls_peer() {
    grep -vE '^(--|\\)' "$BENCH/$1.sql" | sed -n "${2:-1}{s/'lock-' || :n/\$1/; s/:secs/0/g; s/:least/0/g; s/;\$//p}"
}

# Prints a line for each number from $1 to $2.
calls_lines() {
    local i
    for ((i = $1; i <= $2; i++)); do
        # the format is the statement
        # shellcheck disable=SC2059
        printf "$3\n" "$i"
    done
}

# Sets VALUE to the instructions of a call.  Arguments: name, calls, what comes before,
# statement, number before the first.
calls_count() {
    local name=$1 n=$2 before=$3 statement=$4 first=${5:-0} i
    local -a counted=()
    for i in 1 2; do
        { say "$before"; calls_lines "$((first + 1))" "$((first + i * n))" "$statement"; } |
            as_user tee "$WORK/t/$name.$i.sql" >/dev/null
    done
    for i in 1 2; do
        # no effect of a call must be missing: open files are not on disk
        as_user cp -a "$WORK/main" "$WORK/t/counted"
        # a background job has no input except what it opens itself
        run bash -c 'exec <"$1"; shift; exec "$@"' calls "$WORK/t/$name.$i.sql" \
            valgrind --tool=callgrind --callgrind-out-file="$WORK/t/$name.$i.callgrind" \
            postgres --single -D "$WORK/t/counted" -c full_page_writes=off -c autovacuum=off -c jit=off calls
        ! grep -E '(ERROR|WARNING|FATAL):' "$WORK/out" || die "the server did not answer as expected"
        counted+=("$(awk '/Collected *:/ { print $NF }' "$WORK/out")")
        as_user rm -rf "$WORK/t/counted"
    done
    VALUE=$(calc "(${counted[1]} - ${counted[0]}) / $n")
}
