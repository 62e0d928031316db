# scripts/demo.d/end.sh - the table at the end, and what was promised
# shellcheck shell=bash

# Prints the table and the promises; fails when one was broken.
end_table() {
    local broken
    cluster_psql a -v "at_most=$AT_MOST" -f "$PARTS/summary.sql" -f "$PARTS/promises.sql"
    say "                                      with shedlock                      without"
    say "  job            how                  ticks tries runs skips duplicates  runs duplicates"
    cluster_psql a -At -c "SELECT format('  %-14s %-20s %5s %5s %4s %5s %10s  %4s %10s', job, what, ticks, tries, runs,
        skips, duplicates, coalesce(runs_without::text, '-'), coalesce(duplicates_without::text, '-')) FROM demo.summary"
    say
    say "  kill -9 while a replica holds           another has it after"
    cluster_psql a -At -c "SELECT format('  %-38s  %s s%s', holds, round(extract(epoch FROM taken_at - killed_at), 3),
            ', ' || round(extract(epoch FROM taken_at - lock_until), 3) || ' s after its end')
        FROM demo.takeover JOIN (VALUES (1, 'idle', 'a session lock, between statements'),
            (2, 'busy', 'a session lock, in a statement'), (3, 'lease', 'a lease')) s (n, scene, holds) USING (scene)
        ORDER BY n"
    say
    say "  promise, and what the data say"
    cluster_psql a -At -c "SELECT format('  %-6s  %-49s  %s', CASE WHEN kept THEN 'kept' ELSE 'BROKEN' END, claim, evidence)
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
