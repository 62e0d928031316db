# scripts/suites/hard.sh - suite hard: what tools see that tests do not
# shellcheck shell=bash disable=SC2034
#
#	static     both compilers with the strict flags, gcc's analyzer, scan-build, cppcheck
#	cassert    every test with a server whose assertions are compiled in
#	discard    a choice of regress and isolation with debug_discard_caches = 1
#	valgrind   most of regress and isolation, pgtap and the TAP file about crashes, all
#	           backends under memcheck
#	ubsan      every test with the library built with -fsanitize=undefined
#	caches     every test with the library built without the caches that are only for speed
#	program    runs of the program shedlock with every end that they can have, under
#	           memcheck, and built with -fsanitize=address,undefined; with these also
#	           against the servers of test/hostile
#
# The server for cassert, discard and valgrind is built from Debian's source package of
# PostgreSQL, with Debian's patch for extension_destdir and no other: six minutes on two idle
# cores, once, in the cache.  Before it trusts a tool, a part has it find a planted fault
# of the kind: test/hard.

PARTS="static cassert discard valgrind ubsan caches program"
EVERY_TEST="regress isolation pgtap tap"
# Queries take a hundred times as long without caches: some tests of each kind of
# thing that the library looks up, but not the one that counts what a query reads.
DISCARD_SUITES="regress/acquire,once,-once_every,history,-history_reads,run_fails,pause,purge,token,names,by_hand
    isolation/one_holder,run_excludes,purge_spares"
# Without tests that do the same thousands of times, and those of what has to
# happen within part of a second.  The TAP file is about crashes, and does not let
# pg_ctl restart a server, which would then be without valgrind.
VALGRIND_SUITES="regress/-run_often,-many_locks,-no_bloat,-once_every,-wait,-adopt
    isolation/-waiter_,-foreign_row_lock pgtap tap/fault-crash"

# Unpacks the newest source package into WORK/source, with lists of sources.  The archive may
# not have the source of the newest version, as on some days after an update.
fetch_source() {
    local dir=$WORK/apt version
    local options=("${PRIVATE_APT[@]}" -o "Dir::Etc::sourcelist=$WORK/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$dir")
    mkdir -p "$dir/partial" "$WORK/source"
    archives 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        >"$WORK/sources.list"
    apt-get "${options[@]}" -q update
    cd "$dir"
    for version in $(apt-cache "${options[@]}" showsrc "postgresql-$PG_MAJOR" | sed -n 's/^Version: //p' | sort -Vru); do
        ! apt-get "${options[@]}" -q source --download-only "postgresql-$PG_MAJOR=$version" || break
    done
    tar -xf postgresql-*.debian.tar.*
    tar -C "$WORK/source" --strip-components=1 -xf postgresql-*.orig.tar.*
    [ ! -f debian/patches/extension_destdir ] || patch -s -d "$WORK/source" -p1 <debian/patches/extension_destdir
    chmod -R a+rX "$WORK/source"
    cd /
}

# Makes PG_BIN that of server $1, assert or memcheck, which is built unless the cache
# has it.  Outside of valgrind the requests to it that are compiled in cost a few
# instructions.  Of contrib, amcheck is what the tests use.
use_server() {
    local prefix=$SERVERS/assert lock
    # one script builds it, and one at a time works with each
    exec {lock}>>"$prefix.lock"
    flock "$lock"
    if [ ! -e "$prefix/complete" ]; then
        rm -rf "$prefix"
        fetch_source
        as_user bash -euc '
            mkdir build-server
            cd build-server
            ../source/configure -q --prefix="$1" --enable-cassert --enable-debug --enable-tap-tests \
                --without-readline --without-icu CFLAGS="-O1 -g -fno-omit-frame-pointer" CPPFLAGS=-DUSE_VALGRIND
            make -s -j "$(nproc)"
            make -s -C contrib/amcheck
            for dir in . contrib/amcheck src/test/isolation; do make -s -C "$dir" install; done
            cp ../source/src/tools/valgrind.supp "$1"
            rm -rf ../build-server
            touch "$1/complete"' build "$prefix"
    fi
    if [ "$1" = memcheck ]; then
        exec {lock}>&-
        exec {lock}>>"$SERVERS/$1.lock"
        flock "$lock"
        make_memcheck
    fi
    take_extensions "$SERVERS/$1"
    PG_BIN=$SERVERS/$1/bin
    SERVER=$PG_BIN
    say "= ok $("$PG_BIN/pg_config" --version) with assertions"
}

# A second bin folder next to the server with assertions: its "postgres" is a
# script that runs the real one in valgrind, but for what initdb asks for.
make_memcheck() {
    local dir=$SERVERS/memcheck
    as_user bash -euc '
        rm -rf "$2"
        cp -al "$1" "$2"
        mv "$2/bin/postgres" "$2/bin/postgres.real"
        rm "$2/valgrind.supp"
        cat "$1/valgrind.supp" src/test/hard/valgrind.supp >"$2/valgrind.supp"
        cat >"$2/bin/postgres"
        chmod 755 "$2/bin/postgres"' make_memcheck "$SERVERS/assert" "$dir" <<END
#!/bin/sh
case \${1:-} in
    --version | -V | --boot | --single | --check | --describe-config | -C)
        exec '$SERVERS/assert/bin/postgres' "\$@" ;;
esac
exec valgrind --quiet --leak-check=no --trace-children=yes --suppressions='$dir/valgrind.supp' --gen-suppressions=all \\
    --error-markers=VALGRINDERROR-BEGIN,VALGRINDERROR-END '$dir/bin/postgres.real' "\$@"
END
}

# Debian's builds of the other extensions serve as well, where there are any.
take_extensions() {
    local usr
    for usr in /usr "$WORK/pg/usr"; do
        as_user bash -c 'shopt -s nullglob
            for file in "$1/share/postgresql/$2"/extension/{pgtap,pg_cron}*; do cp -u "$file" "$3"; done
            for file in "$1/lib/postgresql/$2/lib"/pg_cron.so*; do cp -u "$file" "$4"; done' take_extensions \
            "$usr" "$PG_MAJOR" "$("$1/bin/pg_config" --sharedir)/extension" "$("$1/bin/pg_config" --pkglibdir)"
    done
}

# Builds the module with the faults and starts server $1 with it.
plant() {
    local name=$1 function
    make_in_work -C "$WORK/src/test/hard" clean
    make_in_work -C "$WORK/src/test/hard" all
    cluster_start "$name"
    for function in assert freed unset overflow released; do
        say "CREATE FUNCTION planted_$function(int) RETURNS int LANGUAGE c" \
            "AS '$WORK/src/test/hard/planted', 'planted_$function';"
    done | cluster_psql "$name" -f -
}

# Plants them in server $1.  Its log must have an alarm with TEXT in it after a call of
# FAULT, for each FAULT=TEXT.
find_planted() {
    local name=$1 fault
    plant "$name"
    for fault in "${@:2}"; do
        : >"$WORK/$name.log"
        cluster_psql "$name" -c "SELECT planted_${fault%%=*}(40)" || say "the session ended"
        cat "$WORK/$name.log"
        # without -q, which would leave while alarms still writes
        alarms "$WORK/$name.log" | grep "${fault#*=}" >/dev/null || did_not_find "${fault%%=*}"
        say "= ok found the planted fault \"${fault%%=*}\""
    done
    cluster_stop "$name" immediate
}

did_not_find() {
    say "did NOT find the planted fault \"$1\""
    exit 1
}

# Runs scripts/test with the server of use_server, or Debian's; the arguments are
# VAR=VALUE... and suites.
run_tests() {
    # shellcheck disable=SC2086
    report_tests "${!#}" env PG_MAJOR="$PG_MAJOR" PG_BIN="${SERVER:-}" "${@:1:$#-1}" "$ROOT/scripts/test" ${!#}
}

# Runs the check of tools/dev.mk that is named, on the planted fault $2 and on src/.
check_static() {
    local target=$1 fault=$2 log=$WORK/static.log
    ! make_in_work "$target" C_FILES=test/hard/planted_static.c "PG_CPPFLAGS=-DPLANT_$fault" >"$log" 2>&1 &&
        grep 'planted_static\.c:[0-9]*:[0-9]*: ' "$log" ||
        { cat "$log"; say "$target did NOT find its planted fault"; return 1; }
    make_in_work "$target" || { say "$target FAILED"; return 1; }
    say "= ok $target found its planted fault, and nothing in $(find "$WORK/src/src" -name '*.c' | wc -l) files"
}

part_static() {
    local pair failed=0
    for pair in lint-gcc=CONVERSION lint-clang=CONVERSION analyze-gcc=DOUBLE_FREE analyze-clang=NULL \
        analyze-cppcheck=BOUNDS; do
        check_static "${pair%=*}" "${pair#*=}" || failed=1
    done
    return "$failed"
}

part_cassert() {
    use_server assert
    find_planted assert assert="TRAP: "
    run_tests LIMIT=1800 "$EVERY_TEST"
}

part_discard() {
    local answer
    use_server assert
    plant discard
    answer=$(cluster_psql discard -At -c "SET debug_discard_caches = 1" -c "SELECT planted_released(1259)" \
        -c "SET debug_discard_caches = 0" -c "SELECT planted_released(1259)" | paste -sd ' ')
    cluster_stop discard immediate
    [ "$answer" = "0 1" ] || did_not_find released
    say "= ok found the planted fault \"released\""
    run_tests TEST_SETTINGS="debug_discard_caches = 1" LIMIT=5400 PGISOLATIONTIMEOUT=1800 "$DISCARD_SUITES"
    say "= skip the other tests for their time"
}

part_valgrind() {
    use_server memcheck
    find_planted memcheck freed="Invalid read" unset=uninitialised
    run_tests LIMIT=5400 PGISOLATIONTIMEOUT=1800 PG_TEST_TIMEOUT_DEFAULT=900 "$VALGRIND_SUITES"
    say "= skip the other TAP files for their time"
}

part_ubsan() {
    export COPT="-fsanitize=undefined -fno-sanitize-recover=all"
    find_planted ubsan overflow="shift exponent"
    run_tests LIMIT=1800 "$EVERY_TEST"
}

part_caches() {
    run_tests COPT=-DSHEDLOCK_NO_CACHES LIMIT=1800 "$EVERY_TEST"
}

# Runs a command, and says what a tool has written to WORK/t/found* then.
find_in() {
    local status=0
    as_user rm -f "$WORK"/t/found*
    as_user "$@" || status=$?
    find "$WORK/t" -name 'found*' -exec cat {} +
    return "$status"
}

# Tries tool $1 on the planted program, built by flags $2 and started by the command that
# follows: each of faults $3 must be found.  Then runs the program.
try_program() {
    local tool=$1 flags=$2 faults=$3 fault found
    shift 3
    as_user gcc -g -O1 $flags -o "$WORK/planted_program" "$WORK/src/test/hard/planted_program.c"
    for fault in $faults; do
        found=$(find_in "$@" "$WORK/planted_program" "$fault" || :)
        [ -n "$found" ] || did_not_find "$fault"
        say "= ok $tool found the planted fault \"$fault\""
    done
    as_user rm -f "$WORK"/src/src/program/{*.o,shedlock}
    COPT=$flags make_in_work src/program/shedlock
    as_user mkdir -p "$WORK/runs.$tool"
    cluster_start program
    cluster_psql program -c "SET client_min_messages = warning" -c "DROP EXTENSION IF EXISTS shedlock CASCADE" \
        -c "CREATE EXTENSION shedlock"
    found=$(find_in PGHOST="$WORK/s/program" PGUSER=postgres PGDATABASE=postgres PGDATA="$WORK/program" \
        env -C "$WORK/runs.$tool" "$WORK/src/test/hard/program" "$@" "$WORK/src/src/program/shedlock" 2>"$WORK/runs.log") ||
        { cat "$WORK/runs.log"; say "$found"; say "not all runs ended as they should, with $tool"; return 1; }
    say "$found"
    [ -z "$found" ] || { say "$tool found something"; return 1; }
    say "= ok $tool found nothing in the program"
}

# Lets a server answer the program, which the sanitizers watch, as no server should.
try_hostile() {
    local seed=${SHEDLOCK_SEED:-$RANDOM} found
    say "SHEDLOCK_SEED=$seed"
    found=$(find_in env -C "$WORK/src" TMPDIR="$WORK/t" /usr/bin/python3 test/hostile/check --rounds 1 --at-once 16 --slow 2 --memory 600 \
        "$seed" env "$@" src/program/shedlock 2>&1) || { say "$found"; say "not all promises are kept"; return 1; }
    say "= ok $found"
}

part_program() {
    build_extension
    # two shared libraries would not agree on where they write
    try_program sanitizers "-fsanitize=address,undefined -static-libasan -static-libubsan -DMEMORY_MAX=268435456" "freed overflow" \
        env ASAN_OPTIONS="log_path=$WORK/t/found" UBSAN_OPTIONS="log_path=$WORK/t/found:print_stacktrace=1"
    # libpq gets no memory for what is too large
    try_hostile ASAN_OPTIONS="log_path=$WORK/t/found:allocator_may_return_null=1:quarantine_size_mb=1" \
        UBSAN_OPTIONS="log_path=$WORK/t/found:print_stacktrace=1"
    # what a thread has that is at work when the program ends counts as possibly lost
    try_program memcheck -O1 "freed unset" valgrind --quiet --vgdb=no --child-silent-after-fork=no --trace-children=no \
        --leak-check=full --show-leak-kinds=definite --log-file="$WORK/t/found.%p"
}

begin() {
    local version
    require_programs gcc libc6-dev make perl python3 tzdata clang clang-tools cppcheck valgrind bison flex patch bzip2 \
        xz-utils zlib1g-dev
    choose_postgres
    require_postgres libipc-run-perl -- "postgresql-$PG_MAJOR-cron" "postgresql-$PG_MAJOR-pgtap"
    version=$(as_user postgres --version | sed -n 's/.*(Debian \([^ )]*\)).*/\1/p' | sed 's/+b[0-9]*$//')
    [ -n "$version" ] || die "this needs Debian's PostgreSQL"
    # Debian's name, since PGXS looks for one of PostgreSQL's
    SERVERS=$CACHE/postgresql-$version
    if ! as_user test -w "$SERVERS"; then
        mkdir -p "$SERVERS"
        [ "$EUID" -ne 0 ] || chown "$RUN_AS:" "$SERVERS"
    fi
    copy_tree
}

part() {
    "part_$1"
}
