# scripts/lib.sh - what the scripts beside it have in common; to be sourced by bash
#
# A build and throwaway servers.  All of it lives in one temporary folder, WORK,
# and belongs to an unprivileged user; every exit, Ctrl-C included, ends the
# processes in WORK and removes it.  Existing clusters of the machine are
# neither used nor changed.
#
#	work_begin [MB]              makes WORK, which needs so much space, and sets the traps; call it first
#	choose_postgres              sets PG_MAJOR; PG_MAJOR or PG_BIN of the environment rule
#	require_programs NAME...     installs packages that are missing, or says which to install
#	require_postgres [NAME...]   sets PG_BIN; gets packages without installing them
#	package_installed NAME, package_known NAME   is it installed; could it be?
#	archive, archives FORMAT     print where this machine gets Debian's packages from
#	copy_tree                    copies the tree to WORK/src
#	build_extension [TARGET]     builds such a copy into WORK/dest
#	cluster_start NAME [LINE...] data in WORK/NAME, LINEs go to its postgresql.conf
#	cluster_psql NAME [ARG...]   psql as its superuser postgres, stops at errors
#	cluster_url NAME [DBNAME]    a connection string for other clients
#	cluster_stop NAME [MODE]     fast (the default), smart or immediate
#	as_user [VAR=VALUE...] COMMAND...   runs it in WORK in a clean environment
#	make_in_work [ARG...]        make in WORK/src
#	spawn [VAR=VALUE...] COMMAND...     the same in the background; its id is in SPAWNED
#	alarms LOG...                what servers said there of failed assertions and the like
#	server_settings [DEST]       the lines that let a server find the build
#	cached_debian DIR COMMAND... a small Debian in DIR, made by "COMMAND... DIR.new" if
#	                             it is not there; root only, as the next two
#	make_debian RELEASE DIR      makes one
#	inside DIR COMMAND...        runs a command in it
#	remove_at_end PATH           removes what is not in WORK
#	end_children                 ends what this script has started, but for servers

# What programs say is read here, and others read what is made here.
export LC_ALL=C.UTF-8
unset LANGUAGE
umask 022

ROOT=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
WORK=
REMOVE=
RUN_AS=
SPAWNED=
KEEP_WORK=${KEEP_WORK:-}
# What Debian has: major version and release, of which 19 is a candidate beside.
RELEASES="15=bookworm 17=trixie 18=forky 19=forky"
# What a server's log has when an assertion has failed, or valgrind or a sanitizer has
# found something
export ALARMS='^TRAP: |VALGRINDERROR-BEGIN|: runtime error: '
# A command in front of each of the unprivileged user's, which becomes it
ENTER=()
declare -A CLUSTER_PORT=()

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# shellcheck source=scripts/packages.sh
. "$ROOT/scripts/packages.sh"

#
# The temporary folder and its end
#

# Everything in WORK runs as an unprivileged user, since servers refuse to run as
# root.  The name is short, since the path of a socket may have 107 bytes at most;
# PGXS allows no blank in it.
work_begin() {
    local tmp=${TMPDIR:-/tmp}
    [ -d "$tmp" ] || die "there is no folder $tmp; TMPDIR may name another"
    # as the kernel says the working directory of a process
    tmp=$(realpath -e -- "$tmp")
    case $tmp in
        *[!A-Za-z0-9/._+-]* | ?????????????????????????????????????????* | "$ROOT" | "$ROOT"/*) tmp=/tmp ;;
    esac
    if [ "$EUID" -eq 0 ]; then
        RUN_AS=nobody
        ! id postgres >/dev/null 2>&1 || RUN_AS=postgres
    fi
    need_space "$tmp" "${1:-500}"
    WORK=$(mktemp -d "$tmp/shedlock.XXXXXX") || die "no temporary folder can be made in $tmp; TMPDIR may name another"
    trap work_end EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 131' QUIT
    trap 'exit 143' TERM
    # The user of WORK has no say in what root removes.
    REMOVE=$(mktemp "$tmp/shedlock-remove.XXXXXX")
    use_cache
    mkdir "$WORK/home" "$WORK/t" "$WORK/s"
    printf '#!/bin/sh\n' >"$WORK/t/try"
    chmod 755 "$WORK/t/try"
    [ "$EUID" -ne 0 ] || chown -R "$RUN_AS:" "$WORK"
    as_user "$WORK/t/try" 2>/dev/null ||
        die "${RUN_AS:-your user} cannot run programs in $tmp; TMPDIR may name another folder"
    rm "$WORK/t/try"
}

# Prints how many MB the disk of folder $1 has free.
free_space() {
    df --output=avail -B1M -- "$1" | tail -n 1 | tr -d ' '
}

# Ends the script if these are less than $2.
need_space() {
    [ "$(free_space "$1")" -ge "$2" ] || die "$1 needs $2 MB of free space and has $(free_space "$1")"
}

# Runs for every way out.  A second Ctrl-C must not leave servers behind.
work_end() {
    local status=$? path
    trap '' HUP INT QUIT TERM
    trap - EXIT
    set +e
    end_children
    end_work_processes
    [ "$EUID" -ne 0 ] || AS_ROOT=yes end_work_processes
    if [ -e "$REMOVE" ]; then
        while read -r path; do rm -rf --one-file-system -- "$path"; done <"$REMOVE"
        rm "$REMOVE"
    fi
    if [ "$status" -ne 0 ] && [ "$(free_space "$WORK")" -lt 20 ]; then
        say "${0##*/}: there is no space left for $WORK; TMPDIR may name another folder than ${WORK%/*}" >&2
    fi
    if [ -n "$KEEP_WORK" ]; then
        say "Kept: $WORK" >&2
    else
        rm -rf "$WORK"
    fi
    exit "$status"
}

remove_at_end() {
    say "$1" >>"$REMOVE"
}

# Loops in subshells come first: they would start new clients.  Who does not heed
# the signal, as the first process of a namespace, has half a minute.
end_children() {
    local pid pids try
    for try in {1..310}; do
        pids=$(descendants $$)
        [ -n "$pids" ] || return 0
        for pid in $pids; do
            case $try in
                1) kill -TERM "$pid" ;;
                300) kill -KILL "$pid" ;;
            esac 2>/dev/null
        done
        sleep 0.1
    done
}

# Prints the process ids below process $1, parents before children, but for
# zombies.  A minimal Debian has no ps.
descendants() {
    local stat line fields pid
    local -A children=()
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        # a command name may hold blanks and parentheses
        read -ra fields <<<"${line##*) }"
        [ "${fields[0]}" = Z ] || children[${fields[1]}]+=" ${line%% *}"
    done
    local todo=(${children[$1]:-})
    while [ ${#todo[@]} -gt 0 ]; do
        pid=${todo[0]}
        todo=("${todo[@]:1}" ${children[$pid]:-})
        if [ "$pid" != "$BASHPID" ]; then
            printf '%s\n' "$pid"
        fi
    done
}

# Servers leave the process tree, so they are found by their working directory:
# as_user starts everything in WORK.  Only its owner may be allowed to see that.
end_work_processes() {
    [ -d "$WORK/home" ] || return 0
    user_command bash -c '
        cd /
        mine() {
            local cwd pid
            for cwd in /proc/[0-9]*/cwd; do
                pid=${cwd#/proc/}; pid=${pid%/cwd}
                [ "$pid" != $$ ] && [ "$pid" != "$BASHPID" ] || continue
                case $(readlink "$cwd" 2>/dev/null) in
                    "$1" | "$1"/*) printf "%s\n" "$pid" ;;
                esac
            done
        }
        # A server that is killed leaves shared memory, and a busy machine needs time.
        for try in {1..610}; do
            pids=$(mine "$1")
            [ -n "$pids" ] || exit 0
            signal=TERM
            [ "$try" -lt 600 ] || signal=KILL
            if [ "$try" -eq 1 ] || [ "$signal" = KILL ]; then
                for pid in $pids; do
                    # an immediate shutdown: these data are of no use any more
                    case $signal$(cat /proc/$pid/comm 2>/dev/null) in
                        TERMpostgres* | TERMmemcheck*) kill -QUIT $pid ;;
                        *) kill -$signal $pid ;;
                    esac 2>/dev/null
                done
            fi
            sleep 0.1
        done' end_work_processes "$WORK"
    # a second signal is not for what cleans up
    "${COMMAND[@]/#--default-signal=*/--ignore-signal=INT,QUIT,TERM}"
}

#
# Commands of the unprivileged user, or with AS_ROOT=yes of root
#

# Sets COMMAND.  setpriv becomes the command, where runuser would stay as its
# parent: so the id of a background job is that of the client itself.
user_command() {
    COMMAND=("${ENTER[@]}")
    if [ "$EUID" -eq 0 ] && [ -z "${AS_ROOT:-}" ]; then
        COMMAND+=(setpriv "--reuid=$RUN_AS" "--regid=$(id -g "$RUN_AS")" --init-groups --)
    fi
    COMMAND+=(env -i -C "$WORK" --default-signal=INT,QUIT
        "PATH=${PG_BIN:+$PG_BIN:}$WORK/pg/usr/bin:$WORK/pg/usr/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        "HOME=$WORK/home" "TMPDIR=$WORK/t"
        LC_ALL=C.UTF-8 "TERM=${TERM:-dumb}" "${PG_ENVIRONMENT[@]}" "$@")
}

as_user() {
    local COMMAND
    user_command "$@"
    "${COMMAND[@]}"
}

spawn() {
    local COMMAND
    user_command "$@"
    "${COMMAND[@]}" &
    SPAWNED=$!
}

#
# The build
#

# The tree may belong to somebody else, and stays clean.
copy_tree() {
    as_user mkdir -p "$WORK/src"
    tar -C "$ROOT" --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude='*.gc??' \
        --exclude='./shedlock-*.zip' --exclude=./results --exclude=./output_iso --exclude=./tmp_check \
        --exclude=./tmp_check_iso --exclude=./log -cf - . |
        as_user tar -C "$WORK/src" -xf -
}

# with_llvm=no: bitcode for inlining takes longer than all the rest.
build_extension() {
    local target=${1:-all} log=$WORK/build.log
    say "Building shedlock for PostgreSQL $PG_MAJOR"
    copy_tree || return 1
    if ! make_in_work "$target" >"$log" 2>&1 ||
        ! make_in_work install "DESTDIR=$WORK/dest" >>"$log" 2>&1; then
        tail -n 60 "$log"
        return 1
    fi
    add_unpacked
}

# Copies extensions that were unpacked for an installed server to where that server
# finds shedlock.
add_unpacked() {
    local part
    [ "${PG_BIN#/usr/}" != "$PG_BIN" ] || return 0
    for part in "usr/share/postgresql/$PG_MAJOR/extension" "usr/lib/postgresql/$PG_MAJOR/lib"; do
        [ ! -d "$WORK/pg/$part" ] || as_user cp -R "$WORK/pg/$part/." "$WORK/dest/$part/"
    done
}

# make in the copy.  COPT in the environment are flags for compiler and linker.
make_in_work() {
    as_user make -s -C "$WORK/src" -j "$(nproc)" PG_CONFIG="$PG_BIN/pg_config" with_llvm=no ${COPT:+"COPT=$COPT"} "$@"
}

# Nothing is installed on the machine: servers get the paths into WORK/dest, or
# another folder that was installed to.  Debian has a setting of its own for
# that, which 18 replaced.
server_settings() {
    local dest=${1:-$WORK/dest}
    if [ "$PG_MAJOR" -ge 18 ]; then
        say "extension_control_path = '$dest$("$PG_BIN/pg_config" --sharedir):\$system'"
    else
        say "extension_destdir = '$dest'"
    fi
    say "dynamic_library_path = '$dest$("$PG_BIN/pg_config" --pkglibdir):\$libdir'"
}

#
# Throwaway servers
#

# Prints a port that nothing on this machine listens on.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        case " ${CLUSTER_PORT[*]-} " in
            *" $port "*) continue ;;
        esac
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            printf '%s\n' "$port"
            return
        fi
    done
}

# Started again, a cluster keeps its data, port and settings.
cluster_start() {
    local name=$1 data=$WORK/$1
    shift
    if [ ! -d "$data" ]; then
        CLUSTER_PORT[$name]=$(free_port)
        as_user initdb -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$WORK/$name.initdb" 2>&1 ||
            { cat "$WORK/$name.initdb"; die "initdb failed"; }
        {
            say "port = ${CLUSTER_PORT[$name]}"
            say "listen_addresses = ''"
            say "unix_socket_directories = '$WORK/s'"
            say "cluster_name = '$name'"
            server_settings
            [ $# -eq 0 ] || printf '%s\n' "$@"
        } | as_user tee -a "$data/postgresql.conf" >/dev/null
    fi
    as_user pg_ctl -D "$data" -l "$WORK/$name.log" -w -t 180 start >/dev/null ||
        { tail -n 20 "$WORK/$name.log"; die "the server $name did not start"; }
}

cluster_stop() {
    as_user pg_ctl -D "$WORK/$1" -m "${2:-fast}" -w stop >/dev/null
}

cluster_psql() {
    local name=$1
    shift
    as_user psql -X -q -P pager=off -v ON_ERROR_STOP=1 -h "$WORK/s" -p "${CLUSTER_PORT[$name]}" -U postgres -d postgres "$@"
}

cluster_url() {
    say "host=$WORK/s port=${CLUSTER_PORT[$1]} user=postgres dbname=${2:-postgres}"
}

# Prints what servers say, in their logs, when an assertion has failed, or
# valgrind or a sanitizer has found something; succeeds if there is any.
alarms() {
    grep -hE -A 40 "$ALARMS" "$@"
}

#
# Small Debians in folders, for root
#

# Runs a command in the Debian in folder $1, as if that were a machine: without
# anything of the environment, and nothing of it outlives the command.
inside() {
    local root=$1
    shift
    unshare --mount --pid --ipc --fork --kill-child bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"' \
        inside "$root" "$@"
}

# Prints the release of Debian that has major version $1.
release_of() {
    local pair
    for pair in $RELEASES; do
        [ "${pair%=*}" != "$1" ] || printf '%s\n' "${pair#*=}"
    done
}

# One that is older than two weeks is made anew, since releases go on.
debian_is_cached() {
    [ -d "$1" ] && [ -z "$(find "$1" -maxdepth 0 -mtime +14)" ]
}

cached_debian() {
    local root=$1
    shift
    ! debian_is_cached "$root" || return 0
    rm -rf --one-file-system "$root" "$root.new"
    remove_at_end "$root.new"
    "$@" "$root.new"
    touch "$root.new"
    mv "$root.new" "$root"
}

# Makes one of release $1 in folder $2, with the packages $3,... and no cluster
# ever.  When it is used again later, its archive's lists are out of date.
make_debian() {
    local release=$1 root=$2 script=/usr/share/debootstrap/scripts/$1 list mirror
    shift 2
    list=$*
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    mkdir -p "${root%/*}"
    update_lists
    mirror=$(archive) || die "this machine has no archive of Debian's"
    # what debootstrap mounts is gone with it
    unshare --mount debootstrap --variant=minbase ${list:+"--include=${list// /,}"} "$release" "$root" "$mirror" "$script"
    apt-config dump | grep '^Acquire::\(http\|https\|Check\)' >"$root/etc/apt/apt.conf.d/90host" || [ $? -eq 1 ]
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/91cache"
    mkdir -p "$root/etc/postgresql-common/createcluster.d"
    echo "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.d/shedlock.conf"
}
