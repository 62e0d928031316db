# scripts/suites/images.sh - suite images: Dockerfile, image/Dockerfile and compose.yaml
# shellcheck shell=bash disable=SC2034
#
#	extension   The image that doc/operations.md builds has the extension's files and nothing
#	            else.  It is mounted as CloudNativePG mounts it, into a container of PostgreSQL 18,
#	            which creates the extension as the resources there say, and uses it.
#	compose     docker compose up: the services race, each tick has one run, and pg_cron runs a
#	            job.  One service goes on while the other one is stopped, and both after
#	            a restart of the database.  Ctrl-C ends all, and docker compose up goes on with
#	            the history.
#	dockerfile  The image of the Dockerfile runs the demo and the tests, or suites SUITES.
#	            Ctrl-C ends a demo.
#
#	ENGINE=docker scripts/test images     fails where no Docker engine can run
#	ENGINE=buildah scripts/test images    starts none
#
# A Docker engine of the suite's own does all this: see scripts/engine.sh.  Where none can run,
# buildah takes its place: see images-buildah.sh.  Small Debians take the place of the images
# from registries.

PARTS="extension compose dockerfile"
ENGINE=${ENGINE:-}

# shellcheck source=scripts/engine.sh
. "$ROOT/scripts/engine.sh"
# shellcheck source=scripts/suites/images-buildah.sh
. "$ROOT/scripts/suites/images-buildah.sh"

begin() {
    need_space "$WORK" 6000
    need_debians perl
    choose_engine
    case " $* " in *" extension "*) cached_debian "$CACHE/image-18" "${RELEASE[18]}" postgresql-18 ;; esac
    case " $* " in *" compose "*) cached_debian "$CACHE/machine-trixie" trixie ;; esac
    case " $* " in *" dockerfile "*) cached_debian "$CACHE/machine-bookworm" bookworm ;; esac
}

# Sets ENGINE to what is used, and says it.
choose_engine() {
    local log=$WORK/engine.log why="as ENGINE says"
    case $ENGINE in
        "" | docker)
            (
                trap end_engine EXIT
                trap 'exit 143' HUP INT QUIT TERM
                need_engine
                alone with_engine try_engine >"$log" 2>&1
            ) &
            if wait $!; then
                ENGINE=docker
                say "Images and containers: $(tail -n 1 "$log")"
                return
            fi
            # Docker refers to its manual last
            why=$(sed "/^\(Run 'docker .*\)\?\$/d" "$log" 2>/dev/null | tail -n 1)
            why="because no Docker engine can run here: ${why:-its packages cannot be had}"
            [ -z "$ENGINE" ] || die "$why"
            ;;
        buildah) ;;
        *) die "ENGINE is docker or buildah, not \"$ENGINE\"" ;;
    esac
    ENGINE=buildah
    require_programs buildah iproute2
    say "Images and containers: buildah $(buildah --version | cut -d " " -f 3), $why"
}

part() {
    trap end_engine EXIT
    case $ENGINE in
        docker) alone with_engine "docker_$1" "$(resources)" "${SUITES:-}" ;;
        buildah) alone "buildah_$1" "$(resources)" "${SUITES:-}" ;;
    esac
}

#
# What both have in common
#

# Waits for a command to succeed, and shows what it says the last time.  If TERMINAL is set, it
# waits no longer than that process is there.
wait_for() {
    local end=$((SECONDS + 1800))
    until "$@" >waited 2>&1; do
        if [ "$SECONDS" -ge "$end" ] || { [ -n "${TERMINAL:-}" ] && ! kill -0 "$TERMINAL"; }; then
            cat waited
            echo "gave up waiting for: $*"
            return 1
        fi
        sleep 0.5
    done
    cat waited
}

# Puts into the copy of the tree what a build for this machine leaves there.  It must not get
# into an image.
leave_build() {
    touch tree/{src/module.o,shedlock.so,src/program/main.o}
}

# Prints what the resources in doc/operations.md say, as assignments for the shell.
resources() {
    sed -n '/^```yaml cluster$/,/^```$/{//!p}' "$ROOT/doc/operations.md" | perl -MCPAN::Meta::YAML -0777 -ne '
        my ($cluster, $database) = map { $_->{spec} } @{ CPAN::Meta::YAML->read_string($_) };
        my ($mounted, $created) = map { @{ $_->{extensions} } == 1 ? $_->{extensions}[0] : die } $cluster->{postgresql}, $database;
        my ($schema) = grep { $_->{name} eq $created->{schema} } @{ $database->{schemas} };
        $database->{cluster}{name} ne "" or die;
        my ($image, $major) = $cluster->{imageName} =~ m{^([\w./-]+:(\d+)[\w.-]*)\z} or die;
        my ($reference) = $mounted->{image}{reference} =~ m{^([\w./-]+:[\w.-]+)\z} or die;
        printf "IMAGE=%s REFERENCE=%s MAJOR=%d MOUNTED=%s CREATED=%s DATABASE=%s OWNER=%s SCHEMA=%s SCHEMA_OWNER=%s\n",
            $image, $reference, $major, map { /^\w+\z/ ? $_ : die } $mounted->{name}, $created->{name},
            @$database{qw(name owner)}, @$schema{qw(name owner)}'
}

# Does standard input have the files of the extension in folder tree and nothing else, as
# "find -printf '%M %U %P'" prints them?
are_extension_files() {
    sort -k 3 | diff <({
        printf '%s\n' \
            "drwxr-xr-x 0 lib" \
            "-rwxr-xr-x 0 lib/shedlock.so" \
            "drwxr-xr-x 0 share" \
            "drwxr-xr-x 0 share/extension" \
            "-rw-r--r-- 0 share/extension/shedlock.control"
        # scripts of releases, and the one that make joins
        find tree/sql -maxdepth 1 -name '*--*.sql' -printf '-rw-r--r-- 0 share/extension/%f\n'
        sed -n 's/^UNRELEASED *= *\(..*\)/-rw-r--r-- 0 share\/extension\/shedlock--\1.sql/p' tree/Makefile
    } | sort -uk 3) -
}

# In a container of PostgreSQL: a server with the paths that CloudNativePG appends, and
# the statements by which it makes what the resources say.
use_extension() {
    set -euo pipefail
    PATH=/usr/lib/postgresql/$MAJOR/bin:$PATH
    initdb -D /tmp/data -U postgres -A trust --no-sync >/dev/null
    cat >>/tmp/data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '/tmp'
extension_control_path = '\$system:/extensions/$MOUNTED/share'
dynamic_library_path = '\$libdir:/extensions/$MOUNTED/lib'
END
    pg_ctl -s -D /tmp/data -l /tmp/log -w start || { cat /tmp/log; exit 1; }
    psql -X -v ON_ERROR_STOP=1 -h /tmp -U postgres 2>&1 <<END
CREATE ROLE $OWNER LOGIN;
CREATE DATABASE $DATABASE OWNER $OWNER;
\connect $DATABASE
CREATE SCHEMA $SCHEMA AUTHORIZATION $SCHEMA_OWNER;
CREATE EXTENSION $CREATED SCHEMA $SCHEMA;
GRANT USAGE ON SCHEMA $SCHEMA TO $OWNER;
SELECT 1 / ($SCHEMA.shedlock_acquire('x') AND pg_read_file('/proc/self/maps') LIKE
    '% /extensions/$MOUNTED/lib/shedlock.so%')::int AS "the library of the image is loaded";
\connect $DATABASE $OWNER
SET search_path = $SCHEMA, public;
CREATE TABLE public.work ();
SELECT 1 / (NOT shedlock_acquire('x') AND shedlock_acquire('y'))::int AS "x is held, y was free";
CALL shedlock_run('vacuum', 'VACUUM public.work', '1 min');
SELECT 1 / count(*) AS "the run succeeded" FROM shedlock_history WHERE name = 'vacuum' AND outcome = 'succeeded';
END
    pg_ctl -s -D /tmp/data -m fast -w stop
}

# By what files $@ say, has one of the services run the job, and has one been refused?
raced() {
    grep -h '^makes the report of ' "$@" && grep -h '" was not run' "$@"
}

# Runs SQL $1 in the database into which command ${@:2} gets.
sql() {
    "${@:2}" psql -X -At -v ON_ERROR_STOP=1 -c "$1"
}

runs() {
    sql "SELECT count(*) FROM shedlock_history WHERE name = 'report'" "$@"
}

has_runs() {
    [ "$(runs "${@:2}")" -ge "$1" ]
}

# Writes what the services have said of the runs that have succeeded, by the history.
write_history() {
    sql "SELECT to_char(tick AT TIME ZONE 'UTC', '\"makes the report of \"YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
        FROM shedlock_history WHERE name = 'report' AND outcome = 'succeeded' ORDER BY tick" "$@" >history
}

# No two runs are of one tick or at the same time; and no tick has two, by what the services
# have said since the history was written.
check_runs() {
    [ "$(sql "SELECT count(*) FROM shedlock_history a JOIN shedlock_history b ON a.token < b.token
        WHERE a.name = 'report' AND b.name = 'report' AND (a.tick >= b.tick OR a.ended_at > b.started_at)" "$@")" = 0 ]
    sort alpha.log beta.log | grep '^makes the report of ' >made
    diff <(uniq made) made
    [ -s history ]
    diff history <(grep -xFf history made)
    echo "= ok the services race, and no tick has two runs: $(wc -l <made)"
}

check_pg_cron() {
    sql "SELECT shedlock_cron_schedule('in-database', '1 second', 'VACUUM')" "$@"
    wait_for sql "SELECT 1 / count(*) FROM shedlock_history WHERE name = 'in-database' AND outcome = 'succeeded'" "$@"
    echo "= ok pg_cron runs a job"
}

#
# The parts, with a Docker engine
#

# Has Docker run a container, and prints what runs.
try_engine() {
    tar -C /usr/bin -c tini-static | docker import - try
    docker run --rm try /tini-static --version
    echo "Docker $(docker version -f '{{.Server.Version}}'), Docker Compose $(docker compose version --short)"
}

docker_extension() {
    local mounted
    eval "$1"
    import image-18 "$IMAGE"
    leave_build
    # as the manual says
    (cd tree && eval "$(sed -n '/^docker build .* --target extension /p' doc/operations.md)")
    # the Kubernetes volume "image", as an engine has it
    mounted=(docker run --rm --user postgres --mount "type=image,source=$REFERENCE,target=/extensions/$MOUNTED" "$IMAGE")
    "${mounted[@]}" find "/extensions/$MOUNTED" -mindepth 1 -printf '%M %U %P\n' | are_extension_files
    echo "= ok the image has the extension's files and nothing else, $("${mounted[@]}" du -sk "/extensions/$MOUNTED" | cut -f 1) kB"
    "${mounted[@]}" bash -c \
        "$(declare -p MAJOR MOUNTED CREATED DATABASE OWNER SCHEMA SCHEMA_OWNER; declare -f use_extension); use_extension" |
        tee used
    ! grep -E 'WARNING|NOTICE' used || exit 1
    echo "= ok $("${mounted[@]}" "/usr/lib/postgresql/$MAJOR/bin/postgres" --version) loads it, as the resources in doc/operations.md say"
}

# Runs a command in the tree, on a terminal, as people do.  Of lines that are written over again
# and again, the last is printed.
on_terminal() {
    env -C tree script -qefc "$*" /dev/null </dev/null | sed -u 's/\r*$//; s/.*\r//'
}

# Starts a command in the tree, on a terminal.  The output is in file $1.
start_on_terminal() {
    rm -f keys
    mkfifo keys
    # what is started in the background ignores Ctrl-C
    env -C tree --default-signal=INT,QUIT script -qefc "${*:2}" /dev/null <keys >"$1" 2>&1 &
    TERMINAL=$!
    exec 9>keys
}

# Presses Ctrl-C there, waits for the command, and sets STATUS.
press_ctrl_c() {
    printf '\003' >&9
    STATUS=0
    wait "$TERMINAL" || STATUS=$?
    TERMINAL=
    exec 9>&-
}

# docker compose for another terminal
compose() {
    docker compose -f tree/compose.yaml "$@"
}

# Writes what services $@ have said since SINCE to files.
docker_logs() {
    local name
    for name; do
        compose logs --no-color --no-log-prefix --since "$SINCE" "$name" >"$name.log"
    done
}

docker_raced() {
    docker_logs alpha beta
    raced alpha.log beta.log
}

docker_has_run() {
    docker_logs "$1"
    grep '^makes the report of ' "$1.log"
}

now() {
    date -u +%FT%T.%NZ
}

docker_compose() {
    local database=(compose exec -T database) stopped other before
    import machine-trixie debian:13
    leave_build
    SINCE=$(now)
    start_on_terminal up "docker compose up"
    wait_for docker_raced
    wait_for has_runs 3 "${database[@]}"
    write_history "${database[@]}"
    docker_logs alpha beta
    check_runs "${database[@]}"
    # the terminal has colours
    wait_for grep -E '(alpha|beta)-1 .*makes the report of ' up
    check_pg_cron "${database[@]}"

    # which of the two wins is chance
    while read -r stopped other; do
        SINCE=$(now)
        wait_for docker_has_run "$stopped" </dev/null
        compose stop "$stopped" </dev/null
        SINCE=$(now)
        wait_for docker_has_run "$other" </dev/null
        compose start "$stopped" </dev/null
    done <<<$'alpha beta\nbeta alpha'
    [ "$(sql "SELECT string_agg(DISTINCT outcome, ' ') FROM shedlock_history WHERE outcome IN ('lost', 'returned')" "${database[@]}")" = returned ]
    echo "= ok each service runs the job while the other one is stopped, and gives back what it was running"

    compose restart database
    SINCE=$(now)
    wait_for docker_raced
    echo "= ok the services go on after a restart of the database"

    before=$(runs "${database[@]}")
    press_ctrl_c
    [ -z "$(docker ps -q)" ]
    compose logs --no-color --since "$SINCE" database | grep 'received fast shutdown request'
    echo "= ok Ctrl-C ends all, exit status $STATUS"
    SINCE=$(now)
    start_on_terminal up "docker compose up"
    wait_for docker_raced
    [ "$(runs "${database[@]}")" -gt "$before" ]
    echo "= ok docker compose up goes on with the history"
    press_ctrl_c
    compose down
    [ -z "$(docker ps -aq)" ]
}

docker_dockerfile() {
    import machine-bookworm debian:12
    docker build -t shedlock tree
    report_tests "docker run --rm -it shedlock" on_terminal docker run --rm -it shedlock
    report_tests "docker run --rm -it shedlock scripts/test" on_terminal docker run --rm -it shedlock scripts/test "$2"
    start_on_terminal demo docker run --rm -it shedlock
    wait_for grep '^1\. Eight replicas' demo
    press_ctrl_c
    [ -z "$(docker ps -aq)" ]
    echo "= ok Ctrl-C ends the demo, exit status $STATUS"
}
