# scripts/lib.sh - what the scripts beside it have in common; to be sourced by bash
#
# Packages, a build and throwaway servers.  All of it but the packages lives in
# one temporary folder, WORK, and belongs to an unprivileged user; an exit by
# whatever way, Ctrl-C included, ends what runs in WORK and removes it.
# Existing clusters of the machine are neither used nor changed.
#
#	work_begin                   makes WORK and sets the traps; call it first
#	choose_postgres              sets PG_MAJOR, PG_BIN; given in the environment they rule
#	require_packages NAME...     installs what is missing
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
#	unpack_packages DIR NAME...  into WORK/DIR, without installing them
#	unpack_node_pg               puts Debian's node-pg into WORK/node
#	unpack_pgbouncer             makes WORK/pgbouncer/run, the pooler
#	cached_debian DIR COMMAND... a small Debian in DIR, made by "COMMAND... DIR.new" if
#	                             it is not there; root only, as the next two
#	make_debian RELEASE DIR      makes one
#	inside DIR COMMAND...        runs a command in it
#	remove_at_end PATH           removes what is not in WORK
#	end_children                 ends what this script has started, but for servers

# What programs say is read here, and others read what is made here.
export LC_ALL=C.UTF-8
umask 022

ROOT=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
WORK=
PG_MAJOR=${PG_MAJOR:-}
PG_BIN=${PG_BIN:-}
SPAWNED=
KEEP_WORK=${KEEP_WORK:-}
APT_UPDATED=
CLUSTER_DROPIN=
# Where what takes long to make is kept
CACHE=${SHEDLOCK_CACHE:-/var/cache/shedlock}
[ "$EUID" -eq 0 ] || CACHE=${SHEDLOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shedlock}
CACHE=$(realpath -m -- "$CACHE")
# What Debian has: major version and release, of which 19 is a candidate beside.
RELEASES="15=bookworm 17=trixie 18=forky 19=forky"
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

#
# The temporary folder and its end
#

# The name is short, since the path of a socket may have 107 bytes at most.
work_begin() {
    WORK=$(mktemp -d /tmp/shedlock.XXXXXX)
    trap work_end EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Gives WORK to the unprivileged user.  That is postgres for root, since
# servers refuse to run as root; it exists once the packages are there.
work_hand_over() {
    mkdir -p "$WORK/home" "$WORK/t" "$WORK/s"
    if [ "$EUID" -eq 0 ] && id postgres >/dev/null 2>&1; then
        chown -R postgres:postgres "$WORK"
    fi
}

# Runs for every way out.  A second Ctrl-C must not leave servers behind.
work_end() {
    local status=$? path
    trap '' HUP INT TERM
    trap - EXIT
    set +e
    default_cluster_allow
    end_children
    end_work_processes
    if [ -e "$WORK/remove" ]; then
        while read -r path; do rm -rf --one-file-system -- "$path"; done <"$WORK/remove"
    fi
    if [ -n "$KEEP_WORK" ]; then
        say "Kept: $WORK" >&2
    else
        rm -rf "$WORK"
    fi
    exit "$status"
}

remove_at_end() {
    say "$1" >>"$WORK/remove"
}

# Loops in subshells come first: they would start new clients.  Who does not heed
# the signal, as the first process of a namespace, has ten seconds.
end_children() {
    local pid pids try
    for try in {1..110}; do
        pids=$(descendants $$)
        [ -n "$pids" ] || return 0
        for pid in $pids; do
            case $try in
                1) kill -TERM "$pid" ;;
                100) kill -KILL "$pid" ;;
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
    [ "$EUID" -ne 0 ] || id postgres >/dev/null 2>&1 || return 0
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
        for try in {1..60}; do
            pids=$(mine "$1")
            [ -n "$pids" ] || exit 0
            signal=TERM
            [ "$try" -lt 50 ] || signal=KILL
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
    "${COMMAND[@]}"
}

#
# Commands of the unprivileged user
#

# Sets COMMAND.  setpriv becomes the command, where runuser would stay as its
# parent: so the id of a background job is that of the client itself.
user_command() {
    COMMAND=("${ENTER[@]}")
    if [ "$EUID" -eq 0 ]; then
        COMMAND+=(setpriv --reuid=postgres --regid=postgres --init-groups --)
    fi
    COMMAND+=(env -i -C "$WORK" --default-signal=INT,QUIT
        "PATH=${PG_BIN:+$PG_BIN:}/usr/local/bin:/usr/bin:/bin" "HOME=$WORK/home" "TMPDIR=$WORK/t"
        LC_ALL=C.UTF-8 "TERM=${TERM:-dumb}" "$@")
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
# Packages
#

# sudo asks for a password where it needs one.
as_root() {
    if [ "$EUID" -eq 0 ]; then
        "$@"
    else
        sudo -- "$@"
    fi
}

package_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Is there a package of that name, installed or to be had?
package_known() {
    package_installed "$1" && return
    apt-cache show postgresql-common >/dev/null 2>&1 || { can_install "$1" && apt_update; } >&2
    apt-cache show "$1" >/dev/null 2>&1
}

apt_update() {
    [ -z "$APT_UPDATED" ] || return 0
    say "Fetching the lists of packages (apt-get update)"
    as_root apt-get -qq -o Acquire::Retries=3 update
    APT_UPDATED=yes
}

# Prints what $1, a format of apt-get indextargets, says of each archive of
# Debian's that this machine gets packages from.
archives() {
    apt-get indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' | sort -u
}

# Prints the address of the one that has them all.
archive() {
    archives '$(LABEL) $(REPO_URI)' | sed -n 's/^Debian //p' | sed -n 1p | grep .
}

# Prints the major versions that are installed with their files for extensions.
installed_postgres() {
    local bin
    for bin in /usr/lib/postgresql/*/bin; do
        if [ -x "$bin/postgres" ] && [ -f "${bin%/bin}/lib/pgxs/src/makefiles/pgxs.mk" ]; then
            bin=${bin%/bin}
            printf '%s\n' "${bin##*/}"
        fi
    done
}

# Takes the highest PostgreSQL that extensions can be built for, else the one
# of this release of Debian.  PG_MAJOR in the environment rules, and PG_BIN for
# a server that is not Debian's build.
choose_postgres() {
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
        die "this needs Debian 12 or newer; elsewhere use the Dockerfile"
    if [ -n "$PG_BIN" ]; then
        PG_MAJOR=$("$PG_BIN/pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
        return
    fi
    if [ -z "$PG_MAJOR" ]; then
        PG_MAJOR=$(installed_postgres | sort -n | tail -n 1)
    fi
    if [ -z "$PG_MAJOR" ]; then
        can_install postgresql
        apt_update
        PG_MAJOR=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
    fi
    [ -n "$PG_MAJOR" ] || die "apt-get knows no package postgresql"
    [ "$PG_MAJOR" -ge 15 ] || die "PostgreSQL $PG_MAJOR is too old: shedlock needs 15 or newer (Debian 12)"
    PG_BIN=/usr/lib/postgresql/$PG_MAJOR/bin
}

can_install() {
    if [ "$EUID" -ne 0 ] && ! command -v sudo >/dev/null; then
        die "please have these packages installed by an administrator, then try again: $*"
    fi
}

# Installs the named packages that are missing; says nothing when none is.
require_packages() {
    local name plan missing=()
    for name; do
        package_installed "$name" || missing+=("$name")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        can_install "${missing[@]}"
        say "Will be installed with apt-get, with what they depend on:"
        say "    ${missing[*]}"
        apt_update
        plan=$(apt-get -s install --no-install-recommends "${missing[@]}")
        refuse_server_upgrade "$plan"
        ! grep -q '^Inst postgresql-[0-9]' <<<"$plan" || default_cluster_forbid
        apt_install "${missing[@]}"
        default_cluster_allow
    fi
    work_hand_over
}

# Shows a line per package, and all that was said if it fails.
apt_install() {
    local log=$WORK/apt.log
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 \
        install -y --no-install-recommends "$@" 2>&1 | tee "$log" |
        sed -uEn 's/^(Need to get|After this|Unpacking|Setting up)/    &/p' ||
        { cat "$log"; die "apt-get could not install $*"; }
}

# Upgrading a server's package restarts its clusters.  $1 is what apt-get would do.
refuse_server_upgrade() {
    local upgrades
    upgrades=$(sed -n 's/^Inst \(postgresql-[0-9]*\) \[.*/\1/p' <<<"$1")
    [ -z "$upgrades" ] ||
        die "that would upgrade and restart $(echo $upgrades): please upgrade it first, then try again"
}

# Debian's server packages create and start a cluster unless told otherwise.
# The drop-in stays no longer than the installation.
default_cluster_forbid() {
    local dir=/etc/postgresql-common/createcluster.d
    say "No default cluster is created or started: $dir/zz-shedlock.conf says so meanwhile"
    CLUSTER_DROPIN=$dir/zz-shedlock.conf
    as_root mkdir -p "$dir"
    echo "create_main_cluster = false" | as_root tee "$CLUSTER_DROPIN" >/dev/null
}

default_cluster_allow() {
    [ -n "$CLUSTER_DROPIN" ] || return 0
    as_root rm -f "$CLUSTER_DROPIN"
    as_root rmdir -p --ignore-fail-on-non-empty "${CLUSTER_DROPIN%/*}"
    CLUSTER_DROPIN=
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
    grep -hE -A 40 '^TRAP: |VALGRINDERROR-BEGIN|: runtime error: ' "$@"
}

# Unpacks packages into the folder WORK/$1: those that may not be installed.
# Call it in a subshell.
unpack_packages() {
    local file dir=$WORK/$1
    shift
    mkdir -p "$dir" && cd "$dir" || return 1
    apt-get download "$@" || { apt_update && apt-get download "$@"; } || return 1
    for file in *.deb; do
        dpkg -x "$file" . && rm "$file" || return 1
    done
    chmod -R a+rX .
}

# It cannot be installed beside a node that is not Debian's, but is all
# JavaScript and runs with any.
unpack_node_pg() {
    command -v node && unpack_packages node node-pg node-split2 node-xtend
}

# Debian's package starts a pooler with the machine.  The libraries' names
# differ between releases.
unpack_pgbouncer() {
    local name dir=$WORK/pgbouncer libs=()
    for name in $(apt-cache depends pgbouncer | sed -n 's/^ *|\{0,1\}Depends: \(lib[^ ]*\)$/\1/p'); do
        package_installed "$name" || libs+=("$name")
    done
    unpack_packages pgbouncer pgbouncer "${libs[@]}" || return 1
    printf '%s\n' '#!/bin/sh' "LD_LIBRARY_PATH=$(printf '%s:' "$dir"/usr/lib/*-linux-gnu* "$dir"/lib/*-linux-gnu*)" \
        'export LD_LIBRARY_PATH' "exec '$dir/usr/sbin/pgbouncer' \"\$@\"" >"$dir/run"
    chmod 755 "$dir/run"
    "$dir/run" --version
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
    mirror=$(archive) || { apt_update && mirror=$(archive); } || die "this machine has no archive of Debian's"
    # what debootstrap mounts is gone with it
    unshare --mount debootstrap --variant=minbase ${list:+"--include=${list// /,}"} "$release" "$root" "$mirror" "$script"
    apt-config dump | grep '^Acquire::\(http\|https\|Check\)' >"$root/etc/apt/apt.conf.d/90host" || [ $? -eq 1 ]
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/91cache"
    mkdir -p "$root/etc/postgresql-common/createcluster.d"
    echo "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.d/shedlock.conf"
}
