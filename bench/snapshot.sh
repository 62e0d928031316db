# bench/snapshot.sh - the first look-up of a lock by a session, while an old snapshot is open
# shellcheck shell=bash

case_snapshot() {
    local free refused
    # time is not measured here
    set_fsync off
    create_database snapshot
    bench_pgbench snapshot 1 one_name -t 1
    snapshot_look
    free=$FREE refused=$REFUSED
    session_begin snapshot "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;"
    # 690 pages
    bench_pgbench snapshot 1 one_name -t "$(full_or_quick 19000 2000)"
    snapshot_look
    session_end
    record snapshot 1 1 "buffers, refused acquire" "no old snapshot" "$REFUSED" "$refused"
    record snapshot 1 1 "buffers, acquire" "no old snapshot" "$FREE" "$free"
    cluster_psql main -c "DROP DATABASE snapshot"
    set_fsync on
}

# Sets FREE and REFUSED to the buffers of an acquire.
snapshot_look() {
    snapshot_buffers
    FREE=$VALUE
    snapshot_buffers
    REFUSED=$VALUE
    cluster_psql main -d snapshot -c "SET client_min_messages = warning" -c "SELECT shedlock_force_release('one name')" >/dev/null
}

# Sets VALUE to the buffers of an acquire.  The session has asked for another lock before,
# so those of the catalogs are not counted.
snapshot_buffers() {
    local explain="EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT shedlock_acquire"
    run psql -X -At -v ON_ERROR_STOP=1 -c "$explain('busy')" -c "$explain('one name')" "$(cluster_url main snapshot)"
    VALUE=$(awk '/^Result/ { n++ } /^ +Buffers: shared/ && n == 2 && !got { got = 1; gsub(/[^0-9 ]/, " "); print $1 + $2 }' "$WORK/out")
    [ -n "$VALUE" ] || { cat "$WORK/out"; die "EXPLAIN said no buffers"; }
}
