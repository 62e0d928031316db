# scripts/demo.d/end.sh - the table at the end, what was promised, what is next
# shellcheck shell=bash

# Prints the table and the promises; fails when one was broken.
end_table() {
    local broken
    cluster_psql a -f "$PARTS/summary.sql" -f "$PARTS/promises.sql"
    cat <<'TEXT'
  tick       a time at which the job is due
  try        a replica, or the pg_cron of a server, comes to do it
  run        a try that does it
  skip       a try that is refused, and does nothing
  duplicate  a run too many: its tick has had one, or, of rebuild, another run
             is still at work

                       with shedlock                        without shedlock
  part job             ticks tries runs skips duplicates    runs duplicates
TEXT
    cluster_psql a -At -c "SELECT format('  %4s %-15s %5s %5s %4s %5s %10s    %4s %10s', part, job, ticks, tries, runs, skips,
        duplicates, coalesce(runs_without::text, '-'), coalesce(duplicates_without::text, '-')) FROM demo.summary ORDER BY n"
    cluster_psql a -At -c "SELECT E'\n  Some timers of part 1 came so late, on this busy machine, that the lock was'
        '\n  free again: a run more in that tick, or one less in the next, is no fault.'
        WHERE EXISTS (SELECT FROM demo.race WHERE variant = 'with' GROUP BY job, tick HAVING count(*) FILTER (WHERE ran) <> 1)"
    say
    say "          promise                                       what the rows say"
    cluster_psql a -At -c "SELECT format('  %-6s  %-44s  %s', CASE WHEN kept THEN 'kept' ELSE 'BROKEN' END, claim, evidence)
        FROM demo.promise ORDER BY n"
    say
    broken=$(cluster_psql a -Atc "SELECT claim FROM demo.promise WHERE kept IS NOT TRUE ORDER BY n")
    if [ -n "$broken" ]; then
        say "Broken:"
        say "$broken"
        return 1
    fi
    say "Every promise was kept."
}

# Draws the runs of server A over time.  Its clock is that of this script.
end_picture() {
    local kind=()
    case $PICTURE in *.svg) kind=(--svg) ;; esac
    as_user "$WORK/src/scripts/timeline" -q -d "$(cluster_url a)" --since "$SECONDS s" "${kind[@]}" >"$WORK/runs.html"
    if [ -n "$PICTURE" ]; then
        cat "$WORK/runs.html" >"$PICTURE"
        say "The runs over time, for a browser: $PICTURE"
    else
        say "scripts/demo runs.html also draws the runs over time, for a browser."
    fi
    say
}

# Prints what to try next, once it has worked as printed in a new database.
end_next() {
    local db=next
    cluster_psql a -c "CREATE DATABASE $db"
    cluster_psql a -d "$db" -c "CREATE EXTENSION shedlock" -f "$PARTS/next.sql" >"$WORK/next.log" 2>&1 ||
        { cat "$WORK/next.log"; die "what is to be tried next does not work"; }
    title "To try in a database of your own"
    say "  Installed as README.md says, and after CREATE EXTENSION shedlock:"
    say
    sed 's/^./      &/' "$PARTS/next.sql"
}
