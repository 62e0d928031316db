# bench/instructions.sh - instructions of a server process for one transaction, counted by callgrind
# shellcheck shell=bash
#
# The server runs in valgrind, and pgbench is its client.  Two numbers of transactions are
# counted; the difference is what the transactions alone need, without their connection.
# pgbench repeats its random numbers.  What the kernel does is not counted, so neither the
# disk nor other load of the machine matters.

# scripts/bench count: the same for files of one's own
count_files() {
    local file
    instructions_begin
    [ -z "${SETUP:-}" ] || as_user tee "$WORK/t/setup.sql" <"$SETUP" >/dev/null
    [ -z "${SETUP:-}" ] || cluster_psql main -d instructions -f "$WORK/t/setup.sql" >/dev/null
    for file; do
        as_user tee "$BENCH/own.sql" <"$file" >/dev/null
        instructions_of instructions own "${WARM:-200}" "${COUNT:-1000}"
        say "$(printf '%9.0f  %s' "$VALUE" "$file")"
    done
    instructions_end
}

case_instructions() {
    local script schema warm more measure peer peers
    local -A counted=()
    instructions_begin
    # the lock that refused_session asks for
    session_begin instructions "SELECT shedlock_acquire_session('bench refused');"
    # Script, schema, transactions before those that count, transactions that count.  What
    # a session remembers of a thousand names, and how full pages are, is steady after 4,000.
    while read -r script schema warm more; do
        instructions_of "instructions$schema" "$script" "$(full_or_quick "$warm" 32)" "$(full_or_quick "$more" 64)"
        counted[$script]=$VALUE
    done <<'END'
one / 200 1000
busy / 200 1000
busy_upsert /peer 200 1000
busy_update /peer 200 1000
refused_session / 200 1000
acquire / 4000 2000
pair / 4000 2000
pair_bare /peer 4000 2000
pair_shedlock /peer 4000 2000
pair_upsert /peer 4000 2000
run / 160 640
run_write / 160 640
write / 160 640
run_begin_end / 160 640
due_begin / 160 640
due_call / 160 640
tick_daily / 160 640
tick_often / 160 640
END
    session_end
    instructions_end
    counted[release]=$(calc "${counted[pair]} - ${counted[acquire]}")
    while IFS=: read -r measure script peer peers; do
        record instructions 1 1 "$measure" "$peer" "${counted[$script]}" "${counted[$peers]--}"
    done <<'END'
busy:busy:SELECT 1:one
busy:busy:ShedLock, upsert:busy_upsert
busy:busy:ShedLock, later tries:busy_update
session lock, refused:refused_session:SELECT 1:one
acquire:acquire:SELECT 1:one
release:release:SELECT 1:one
pair:pair:two UPDATEs:pair_bare
pair:pair:ShedLock, UPDATE:pair_shedlock
pair:pair:ShedLock, upsert:pair_upsert
run:run:the bare statement:one
run, its command writes:run_write:the bare statement:write
run_begin and run_end:run_begin_end:SELECT 1:one
not due, run_begin:due_begin:SELECT 1:one
not due, CALL run:due_call:SELECT 1:one
shedlock_tick, daily in Berlin:tick_daily:SELECT 1:one
shedlock_tick, every 5 minutes:tick_often:SELECT 1:one
END
}

# Starts the server in valgrind, with a database "instructions".  The settings keep out
# what happens now and then; all others are those of the other cases.
instructions_begin() {
    create_database instructions
    cluster_stop main
    as_user tee "$WORK/bin/counted" >/dev/null <<END
#!/bin/sh
exec valgrind --quiet --tool=callgrind --trace-children=yes --callgrind-out-file='$WORK/t/callgrind.%p' \\
    '$PG_BIN/postgres' "\$@"
END
    as_user chmod +x "$WORK/bin/counted"
    as_user pg_ctl -D "$WORK/main" -l "$WORK/main.log" -w -t 600 -p "$WORK/bin/counted" -o "-c shared_buffers=16MB \
        -c autovacuum=off -c full_page_writes=off -c checkpoint_timeout=1d -c jit=off -c log_disconnections=on \
        -c log_line_prefix='%p '" start >/dev/null ||
        { tail -n 20 "$WORK/main.log"; die "the server did not start in valgrind"; }
}

instructions_end() {
    cluster_stop main
    cluster_start main
    cluster_psql main -c "DROP DATABASE instructions"
}

# Sets VALUE to the instructions of a transaction: database or database/peer, script,
# transactions before those that count, transactions that count.
instructions_of() {
    local n ended pid
    local -a totals=()
    for n in "$3" "$(($3 + $4))"; do
        ended=$(instructions_ended | wc -l)
        bench_pgbench "${1%/}" 1 "$2" -t "$n" --random-seed=1
        # pgbench has a connection before that of its client
        until pid=$(instructions_ended | tail -n "+$((ended + 2))") && [ -n "$pid" ] && [ ! -e "/proc/$pid" ]; do
            run sleep 0.1
        done
        totals+=("$(awk '/^totals:/ { print $2 }' "$WORK/t/callgrind.$pid")")
    done
    VALUE=$(calc "(${totals[1]} - ${totals[0]}) / $4")
}

# Prints the ids of the server processes whose connections have ended.
instructions_ended() {
    sed -n 's/^\([0-9]*\) LOG:  disconnection: .*/\1/p' "$WORK/main.log"
}
