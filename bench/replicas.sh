# bench/replicas.sh - six replicas with a job that is due each second
# shellcheck shell=bash
#
# This prints a table of its own: it counts runs, and compares no speed.

case_replicas() {
    require_postgres libdbd-pg-perl
    create_database replicas
    run env PERL5LIB="$WORK/src/test/perl${PERL_PATH:+:$PERL_PATH}" \
        perl "$BENCH/replicas.pl" "$WORK/s/main" 5432 "$(full_or_quick 180 30)"
    say
    cat "$WORK/out"
    say
    no_clients
    cluster_psql main -c "DROP DATABASE replicas"
}
