# scripts/suites/images-buildah.sh - the parts of suite images where no Docker engine can run
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
#
# buildah builds the images and runs the containers, in the network of the machine.  Docker
# Compose, in a container, reads compose.yaml, and says which commands and variables its
# services have.

# buildah with all that it keeps in the folder of alone.  What it has for a container stays if
# that is killed.
builder() {
    TMPDIR=$PWD buildah --root "$PWD/root" --runroot "$PWD/run" --storage-driver vfs "$@"
}

# Makes image $2 of the small Debian in folder $1.
image_of() {
    local first
    first=$(builder from scratch)
    tar -C "$1" -cf base.tar .
    builder add -q "$first" base.tar /
    builder commit -q --rm "$first" "$2"
    rm base.tar
}

# Makes container $1 of image $2, in which the host "database" is this machine.
container() {
    builder from -q --pull-never --add-host database:127.0.0.1 --name "$1" "$2" >/dev/null
}

# Runs "[OPTION...] CONTAINER -- COMMAND...".
run() {
    builder run --isolation=chroot "$@"
}

# Builds target $1 of image/Dockerfile, with options for buildah.
build() {
    mkdir tree
    tree | tar -C tree -xf -
    leave_build
    builder bud -q --isolation=chroot --pull-never --target "$1" -t "localhost/$1" "${@:2}" tree
}

buildah_extension() {
    local mount
    eval "$1"
    image_of "$CACHE/image-18" localhost/image-18
    build extension -f tree/image/Dockerfile --build-arg BASE=localhost/image-18
    container extension localhost/extension
    mount=$(builder mount extension)
    find "$mount" -mindepth 1 -printf '%M %U %P\n' | are_extension_files
    echo "= ok the image has the extension's files and nothing else, $(du -sk "$mount" | cut -f 1) kB"
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

buildah_compose() {
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
    local name before database=(run database --)
    set -o pipefail
    ip link set lo up
    for name in database alpha beta; do
        [ "$(service "$name" '$s->{image}' | tr -d '\0')" = shedlock-server ]
        container "$name" localhost/server
    done
    start_service database
    wait_for is_healthy
    start_service alpha
    start_service beta
    wait_for raced alpha.log beta.log
    wait_for has_runs 3 "${database[@]}"
    write_history "${database[@]}"
    check_runs "${database[@]}"
    check_pg_cron "${database[@]}"
    before=$(runs "${database[@]}")
    "${database[@]}" pg_ctl -s -m fast -w stop
    truncate -s 0 alpha.log beta.log
    start_service database
    wait_for raced alpha.log beta.log
    [ "$(runs "${database[@]}")" -gt "$before" ]
    echo "= ok the services and the history go on after a restart of the database"
}

# Runs a command in a container of its own, as "docker run" does.
run_contained() {
    local container
    container=$(builder from --pull-never shedlock)
    report_tests "$1" run "$container" -- "$@"
    builder rm "$container" >/dev/null
}

# Runs the command of the image, and suites $2.
buildah_dockerfile() {
    image_of "$CACHE/machine-bookworm" docker.io/library/debian:12
    builder bud --isolation=chroot --pull-never -t shedlock "$ROOT"
    # shellcheck disable=SC2046
    run_contained $(builder inspect --type image --format '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' shedlock)
    # shellcheck disable=SC2086
    run_contained scripts/test $2
}
