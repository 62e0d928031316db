# bench/history.sh - the views of a database with a long history and many names
# shellcheck shell=bash

case_history() {
    local runs names round
    runs=$(full_or_quick 10000000 100000)
    names=$(full_or_quick 1000000 10000)
    # the data are written once, and only read by what is measured
    cluster_start history "shared_preload_libraries = 'pg_cron'" "fsync = off" "wal_level = minimal" "max_wal_senders = 0"
    cluster_psql history -1 -v "runs=$runs" -v "names=$names" -v "jobs=$(full_or_quick 1000 100)" -f "$BENCH/history_data.sql" >/dev/null
    cluster_psql history -c "VACUUM ANALYZE" -c "CHECKPOINT"
    history_script
    for ((round = 1; round <= ROUNDS; round++)); do
        run psql -X -q -v ON_ERROR_STOP=1 -f "$WORK/t/history.sql" "$(cluster_url history)"
        history_record "$round"
    done
    cluster_stop history
    as_user rm -rf "$WORK/history"
}

# Writes a script that says each query's name and runs the query six times, with its time.
# The exporter's queries are those of doc/monitoring.
history_script() {
    {
        say '\timing on'
        say '\o /dev/null'
        cat "$BENCH/history_reads.sql"
        awk '/^[a-z]/ { print "-- exporter, " substr($1, 1, length($1) - 1) }
            / query: / { q = 1; next } / metrics:/ && q { q = 0; print ";" } q' "$WORK/src/doc/monitoring/queries.yaml"
    } | awk '/^-- / { print "\\echo " substr($0, 4); query = ""; next }
        /^\\/ { print; next }
        { query = query " " $0 }
        /;$/ { for (i = 0; i < 6; i++) print query }' | as_user tee "$WORK/t/history.sql" >/dev/null
}

# Records the median time of each query, without the first, which also reads catalogs.
history_record() {
    awk -F '\t' -v OFS='\t' -v round="$1" '
        function row(peer, of) {
            print "history", 1, round, "ms, " name[i], peer, ms[name[i]], of, of == "-" ? "-" : sprintf("%.4g", ms[name[i]] / of)
        }
        # the third of five, as they come
        /^Time: / {
            split($0, part, " ")
            for (i = count++; i > 1 && time[i - 1] > part[2] + 0; i--)
                time[i] = time[i - 1]
            if (count > 1)
                time[i] = part[2] + 0
            if (count == 6)
                ms[name[n]] = time[3]
            next
        }
        /./ { name[++n] = $0; count = 0 }
        END {
            for (i = 1; i <= n; i++)
                if (name[i] == "shedlock_locks")
                    row("count(*) of the table", ms["count(*)"])
                else if (name[i] != "count(*)")
                    row("-", "-")
        }' "$WORK/out" >>"$RESULTS"
}
