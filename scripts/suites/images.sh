# scripts/suites/images.sh - suite images: the images of image/Dockerfile, and compose.yaml
# shellcheck shell=bash disable=SC2034
#
#	extension  The image has the extension's files and nothing else.  It is mounted as
#	           CloudNativePG mounts it, into a container of PostgreSQL 18, which creates the
#	           extension as the resources in doc/operations.md say, and uses it.
#	compose    Docker Compose reads compose.yaml.  Without Docker, buildah runs each service
#	           with the command and the variables that Docker Compose has read.  The services
#	           race, each tick has one run, and pg_cron runs a job.
#
# buildah builds the images, with small Debians in place of those from registries.

PARTS="extension compose"

begin() {
    need_space "$WORK" 4000
    need_debians buildah iproute2 perl
    cached_debian "$CACHE/image-18" "${RELEASE[18]}" postgresql-18
    cached_debian "$CACHE/machine-trixie" trixie
}

part() {
    alone "$1"
}

# Makes container $1 of image $2, in which the host "database" is this machine.
container() {
    builder from -q --pull-never --add-host database:127.0.0.1 --name "$1" "$2" >/dev/null
}

# Runs "[OPTION...] CONTAINER -- COMMAND...".
run() {
    builder run --isolation=chroot "$@"
}

# Waits for a command to succeed, and shows what it says the last time.
wait_for() {
    local end=$((SECONDS + 600))
    until "$@" >waited 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { cat waited; echo "waited too long for: $*"; return 1; }
        sleep 0.5
    done
    cat waited
}

# Builds target $1 of image/Dockerfile, with options for buildah.  A build for this machine may
# be there, and must not get into an image.
build() {
    mkdir tree
    tree | tar -C tree -xf -
    touch tree/{src/module.o,shedlock.so,src/program/main.o}
    builder bud -q --isolation=chroot --pull-never --target "$1" -t "localhost/$1" "${@:2}" tree
}

# Prints what the resources in doc/operations.md say, as assignments for the shell.
resources() {
    sed -n '/^```yaml cluster$/,/^```$/{//!p}' "$ROOT/doc/operations.md" | perl -MCPAN::Meta::YAML -0777 -ne '
        my ($cluster, $database) = map { $_->{spec} } @{ CPAN::Meta::YAML->read_string($_) };
        my ($mounted, $created) = map { @{ $_->{extensions} } == 1 ? $_->{extensions}[0] : die } $cluster->{postgresql}, $database;
        my ($schema) = grep { $_->{name} eq $created->{schema} } @{ $database->{schemas} };
        $database->{cluster}{name} ne "" && $mounted->{image}{reference} ne "" or die;
        printf "MAJOR=%d MOUNTED=%s CREATED=%s DATABASE=%s OWNER=%s SCHEMA=%s SCHEMA_OWNER=%s\n",
            $cluster->{imageName} =~ /:(\d+)/, map { /^\w+\z/ ? $_ : die } $mounted->{name}, $created->{name},
            @$database{qw(name owner)}, @$schema{qw(name owner)}'
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

# Builds the image, looks into it, and uses it.
extension() {
    local mount
    image_of "$CACHE/image-18" localhost/image-18
    build extension -f tree/image/Dockerfile --build-arg BASE=localhost/image-18
    container extension localhost/extension
    mount=$(builder mount extension)
    diff - <(find "$mount" -mindepth 1 -printf '%M %U %P\n' | sort -k 3) <<'END'
drwxr-xr-x 0 lib
-rwxr-xr-x 0 lib/shedlock.so
drwxr-xr-x 0 share
drwxr-xr-x 0 share/extension
-rw-r--r-- 0 share/extension/shedlock--1.0.sql
-rw-r--r-- 0 share/extension/shedlock.control
END
    echo "= ok the image has the extension's files and nothing else, $(du -sk "$mount" | cut -f 1) kB"
    eval "$(resources)"
    container server localhost/image-18
    run --user postgres -v "$mount:/extensions/$MOUNTED:ro" server -- bash -c \
        "$(declare -p MAJOR MOUNTED CREATED DATABASE OWNER SCHEMA SCHEMA_OWNER; declare -f use_extension); use_extension" |
        tee used
    ! grep -E 'WARNING|NOTICE' used || exit 1
    echo "= ok $(run server -- "/usr/lib/postgresql/$MAJOR/bin/postgres" --version) loads it, as the resources in doc/operations.md say"
}

# Prints the words that Perl expression $2 makes of service $1, each with a zero byte
# behind it.  Docker Compose doubles dollar signs.
service() {
    perl -MJSON::PP -0777 -e 'my $s = decode_json(<STDIN>)->{services}{$ARGV[0]} or die;
        my @words = eval $ARGV[1];
        die $@ if $@;
        print map { s/\$\$/\$/gr . "\0" } @words' "$@" <compose.json
}

# Runs service $1 in the background as Docker Compose would, and writes to $1.log.
start_service() {
    local variables command
    mapfile -d '' variables < <(service "$1" 'map { "$_=$s->{environment}{$_}" } sort keys %{ $s->{environment} }')
    mapfile -d '' command < <(service "$1" '@{ $s->{command} // [] }')
    [ ${#command[@]} -gt 0 ] ||
        read -ra command <<<"$(builder inspect --type image --format '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' localhost/server)"
    run --hostname "$1" "$1" -- env "${variables[@]}" "${command[@]}" >>"$1.log" 2>&1 &
}

is_healthy() {
    local test
    mapfile -d '' test < <(service database '@{ $s->{healthcheck}{test} }')
    run database -- "${test[@]:1}"
}

database_sql() {
    run database -- psql -X -At -v ON_ERROR_STOP=1 -c "$1"
}

# Has one of services $@ run the job, and has one been refused?
raced() {
    cat "${@/%/.log}" >raced.log
    grep '^makes the report of ' raced.log && grep '" was not run' raced.log
}

compose() {
    local options
    image_of "$CACHE/machine-trixie" docker.io/library/debian:13
    container docker debian:13
    run docker -- sh -ec 'apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends docker-compose'
    run -v "$ROOT:/tree:ro" docker -- docker-compose -f /tree/compose.yaml config --format json >compose.json
    echo "= ok $(run docker -- docker-compose version) reads compose.yaml"
    builder rm docker
    mapfile -d '' options < <(service database '$s->{build}{target}, "-f", "tree/$s->{build}{dockerfile}",
        map { ("--build-arg", "$_=$s->{build}{args}{$_}") } sort keys %{ $s->{build}{args} }')
    build "${options[@]}"
    # port 5432 may be taken on this machine
    unshare --net bash -euc "$(declare -f); race"
}

race() {
    local name start
    set -o pipefail
    ip link set lo up
    for name in database alpha beta; do
        [ "$(service "$name" '$s->{image}' | tr -d '\0')" = shedlock-server ]
        container "$name" localhost/server
    done
    start_service database
    wait_for is_healthy
    start=$SECONDS
    start_service alpha
    start_service beta
    wait_for raced alpha beta
    echo "= ok the job was run and refused after $((SECONDS - start)) s"
    wait_for raced alpha
    wait_for raced beta
    [ "$(database_sql "SELECT count(*) FROM shedlock_history a JOIN shedlock_history b ON a.token < b.token
        WHERE a.name = 'report' AND b.name = 'report' AND (a.tick >= b.tick OR a.ended_at > b.started_at)")" = 0 ]
    database_sql "SELECT to_char(tick AT TIME ZONE 'UTC', '\"makes the report of \"YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
        FROM shedlock_history WHERE name = 'report' AND outcome = 'succeeded' ORDER BY tick" >history
    sort alpha.log beta.log | grep '^makes the report of ' >made
    diff <(uniq made) made
    [ -s history ] && diff history <(grep -xFf history made)
    echo "= ok both services have run it and were refused, and no tick had two runs: $(wc -l <made)"
    database_sql "SELECT shedlock_cron_schedule('in-database', '1 second', 'VACUUM', lock_at_most_for => '1 min')"
    wait_for database_sql "SELECT 1 / count(*) FROM shedlock_history WHERE name = 'in-database' AND outcome = 'succeeded'"
    echo "= ok pg_cron runs a job"
    run database -- pg_ctl -s -m fast -w stop
    truncate -s 0 alpha.log beta.log
    start_service database
    wait_for raced alpha beta
    [ "$(database_sql "SELECT count(*) FROM shedlock_history WHERE name = 'report'")" -gt "$(wc -l <history)" ]
    echo "= ok the services and the history go on after a restart of the database"
}
