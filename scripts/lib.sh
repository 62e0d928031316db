# scripts/lib.sh - what the scripts have in common; sourced by bash
#
# A build and throwaway servers.  All of it lives in one temporary folder, WORK,
# and belongs to an unprivileged user; every exit, Ctrl-C included, ends the
# processes in WORK and removes it.  Existing clusters of the machine are
# neither used nor changed.
#
# A script begins with work_begin and ends by its traps.  Between them require_programs,
# choose_postgres and require_postgres of packages.sh get what it needs.

# What programs say is read here, and others read what is made here.
export LC_ALL=C.UTF-8
unset LANGUAGE PERL5LIB PERL5OPT
umask 022

ROOT=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
WORK=
REMOVE=
RUN_AS=
SPAWNED=
KEEP_WORK=${KEEP_WORK:-}
# What a server's log has when it has crashed, an assertion has failed, or valgrind or a
# sanitizer has found something
export ALARMS='^TRAP: |VALGRINDERROR-BEGIN|: runtime error: |PANIC:  |was terminated by signal (4|6|7|8|11):'

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Prints the commit of the tree.
commit() {
    git -C "$ROOT" rev-parse --short HEAD 2>/dev/null || echo unknown
}

# A signal waits for a command in the foreground, and not for one in the background.
interruptible() {
    "$@" &
    wait $!
}

# shellcheck source=scripts/packages.sh
. "$ROOT/scripts/packages.sh"

#
# The temporary folder and its end
#

# Makes WORK, which needs $1 MB, and sets the traps.
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

# Ends the script if folder $1 has less than $2 MB of free space.
need_space() {
    local free
    free=$(df --output=avail -B1M -- "$1" | tail -n 1 | tr -d ' ')
    [ "$free" -ge "$2" ] || die "$1 needs $2 MB of free space and has $free"
}

# Runs for every way out.  A second Ctrl-C must not leave servers behind.
work_end() {
    local status=$? path
    trap '' HUP INT QUIT TERM
    trap - EXIT
    set +e
    end_children
    end_work_processes
    if [ -e "$REMOVE" ]; then
        while read -r path; do rm -rf --one-file-system -- "$path"; done <"$REMOVE"
        rm "$REMOVE"
    fi
    if [ -n "$KEEP_WORK" ]; then
        say "Kept: $WORK" >&2
    else
        rm -rf "$WORK"
    fi
    exit "$status"
}

# Waits for processes; fails if one of them has.
wait_for_each() {
    local pid failed=0
    for pid in "$@"; do
        wait "$pid" || failed=1
    done
    return "$failed"
}

# Has path $1 removed that is not in WORK.
remove_at_end() {
    say "$1" >>"$REMOVE"
}

# Loops in subshells come first: they would start new clients.  Another script has
# servers to end.  A process that ignores the signal, as the first of a
# namespace, has a minute and a half.
end_children() {
    local pids try
    for try in {1..910}; do
        pids=$(descendants)
        [ -n "$pids" ] || return 0
        case $try in
            1) kill -TERM $pids ;;
            900) kill -KILL $pids ;;
        esac 2>/dev/null
        sleep 0.1
    done
}

# Prints the process ids below this script, parents before children, but for
# zombies and its own.  A minimal Debian has no ps; a command name may hold blanks
# and parentheses.
descendants() {
    # each part of a pipeline has another one
    local own=$BASHPID
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v top=$$ -v own="$own" '
        { pid = $1; sub(/.*\) /, ""); if ($1 != "Z" && pid != own) children[$2] = children[$2] " " pid }
        END {
            for (n = split(children[top], todo); i < n;) {
                print pid = todo[++i]
                for (k = split(children[pid], more); k > 0; k--)
                    todo[++n] = more[k]
            }
        }'
}

# Servers leave the process tree, so they are found by their working directory:
# as_user starts everything in WORK.  Only its owner may be allowed to see that.  Each
# gets one signal, also those that begin meanwhile.  A server that is killed leaves
# shared memory, and a busy machine needs time.
end_work_processes() {
    [ -d "$WORK/home" ] || return 0
    user_command bash -c '
        cd /
        told=
        for try in {1..610}; do
            pids=$(find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$1" -o -lname "$1/*" \) -printf " %h " 2>/dev/null)
            [ -n "$pids" ] || exit 0
            pids=${pids//\/proc\//}
            for pid in $pids; do
                # an immediate shutdown: these data are of no use any more
                case $try,$told,$(cat /proc/$pid/comm 2>/dev/null) in
                    6??,*) kill -KILL $pid ;;
                    *" $pid "*) ;;
                    *,postgres* | *,memcheck* | *,callgrind*) kill -QUIT $pid ;;
                    *) kill -TERM $pid ;;
                esac 2>/dev/null
            done
            told+=$pids
            sleep 0.1
        done' end_work_processes "$WORK"
    # a second signal is not for what cleans up
    "${COMMAND[@]/#--default-signal=*/--ignore-signal=INT,QUIT,TERM}"
}

#
# Commands of the unprivileged user
#

# Sets COMMAND.  setpriv becomes the command, where runuser would stay as its
# parent: so the id of a background job is that of the client itself.
user_command() {
    COMMAND=()
    if [ "$EUID" -eq 0 ]; then
        COMMAND+=(setpriv "--reuid=$RUN_AS" "--regid=$(id -g "$RUN_AS")" --init-groups --)
    fi
    COMMAND+=(env -i -C "$WORK" --default-signal=INT,QUIT
        "PATH=${PG_BIN:+$PG_BIN:}$WORK/bindir:$WORK/pg/usr/bin:$WORK/pg/usr/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        "HOME=$WORK/home" "TMPDIR=$WORK/t"
        LC_ALL=C.UTF-8 "TERM=${TERM:-dumb}" "${PG_ENVIRONMENT[@]}" "$@")
}

# Runs "[VAR=VALUE...] COMMAND..." in WORK in a clean environment.
as_user() {
    local COMMAND
    user_command "$@"
    "${COMMAND[@]}"
}

# The same in the background; the process id is in SPAWNED.
spawn() {
    local COMMAND
    user_command "$@"
    "${COMMAND[@]}" &
    SPAWNED=$!
}

#
# The build
#

# Writes the tree to standard output as tar, without git's files and what was built.
tree() {
    tar -C "$ROOT" --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude='*.gc??' \
        --exclude=./src/program/shedlock --exclude=./test/faults/program/child --exclude='./shedlock-*.zip' --exclude=./results \
        --exclude=./output_iso --exclude=./tmp_check --exclude=./tmp_check_iso --exclude=./log -cf - .
}

# Copies the tree, which may belong to another user and stays clean, to WORK/src.
copy_tree() {
    as_user mkdir -p "$WORK/src"
    tree | as_user tar -C "$WORK/src" -xf -
}

# Builds target $1 of such a copy, and installs it into WORK/dest.  WORK/bindir, which is in
# PATH, has the program shedlock.
# with_llvm=no: bitcode for inlining takes longer than all the rest.
build_extension() {
    local target=${1:-all} log=$WORK/build.log
    say "Building shedlock for PostgreSQL $PG_MAJOR"
    copy_tree || return 1
    { make_in_work "$target" && make_in_work install "DESTDIR=$WORK/dest"; } >"$log" 2>&1 ||
        { tail -n 60 "$log"; return 1; }
    as_user ln -sfn "$WORK/dest$("$PG_BIN/pg_config" --bindir)" "$WORK/bindir"
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

# Nothing is installed on the machine: servers get the paths into WORK/dest.  Debian
# has a setting of its own for that, which 18 replaced.
server_settings() {
    local dest=$WORK/dest
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

# Starts server $1 with data in WORK/$1; the lines that follow go to its postgresql.conf.
# Each has a folder for its socket, and listens nowhere else.  Started again, it keeps
# its data and settings.
cluster_start() {
    local name=$1 data=$WORK/$1
    shift
    if [ ! -d "$data" ]; then
        as_user mkdir -p "$WORK/s/$name"
        as_user initdb -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$WORK/$name.initdb" 2>&1 ||
            { cat "$WORK/$name.initdb"; die "initdb failed"; }
        {
            server_settings
            printf '%s\n' "port = 5432" "listen_addresses = ''" "unix_socket_directories = '$WORK/s/$name'" \
                "cluster_name = '$name'" "$@"
        } | as_user tee -a "$data/postgresql.conf" >/dev/null
    fi
    as_user pg_ctl -D "$data" -l "$WORK/$name.log" -w -t 180 start >/dev/null ||
        { tail -n 20 "$WORK/$name.log"; die "the server $name did not start"; }
}

# Stops server $1: fast, or in mode $2.
cluster_stop() {
    as_user pg_ctl -D "$WORK/$1" -m "${2:-fast}" -w stop >/dev/null
}

# psql as the superuser of server $1, which stops at errors.
cluster_psql() {
    local name=$1
    shift
    as_user psql -X -q -P pager=off -v ON_ERROR_STOP=1 -h "$WORK/s/$name" -p 5432 -U postgres -d postgres "$@"
}

# Prints a connection string for other clients: server, database.
cluster_url() {
    say "host=$WORK/s/$1 port=5432 user=postgres dbname=${2:-postgres}"
}

# Prints the alarms in servers' logs; succeeds if there is any.
alarms() {
    grep -hE -A 40 "$ALARMS" "$@"
}

#
# Small Debians in folders, for root
#

# The release that has a PostgreSQL; 19 is in experimental
declare -A RELEASE=([15]=bookworm [17]=trixie [18]=forky [19]=forky)

# Gets what makes them, and other programs.
need_debians() {
    [ "$EUID" -eq 0 ] || die "this needs root, for chroot"
    require_programs debootstrap "$@"
}

# Runs a command in the Debian in folder $1, as if that were a machine: without
# anything of the environment, and nothing of it outlives the command.
inside() {
    unshare --mount --pid --ipc --fork --kill-child bash -euc '
        mount -t proc proc "$1/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
        # the machine may be in another network by now
        [ ! -e /etc/resolv.conf ] || [ ! -e "$1/etc/resolv.conf" ] || mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
        exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "${@:2}"' \
        inside "$@"
}

# Makes a small Debian in folder $1, of release $2, with packages $3..., unless it is
# there.  One that is older than two weeks is made again, since releases go on.
cached_debian() {
    local root=$1 lock kind
    # held as long as this script, or its part, uses it; alone only while it is made: a
    # script that asks twice would wait for itself
    exec {lock}>>"$root.lock"
    for kind in --shared --exclusive; do
        flock "$kind" "$lock"
        [ -z "$(find "$root" -maxdepth 0 -mtime -14 2>/dev/null)" ] || break
    done
    if [ -n "$(find "$root" -maxdepth 0 -mtime -14 2>/dev/null)" ]; then
        flock --shared "$lock"
        return
    fi
    say "Making a small Debian in $root"
    rm -rf --one-file-system "$root.new"
    remove_at_end "$root.new"
    # in a condition bash would go on after what failed
    make_debian "$root.new" "${@:2}" >"$WORK/debian.log" 2>&1 &
    wait $! || { tail -n 40 "$WORK/debian.log"; return 1; }
    touch "$root.new"
    rm -rf --one-file-system "$root"
    mv "$root.new" "$root"
    flock --shared "$lock"
}

# Its packages come from the release as it was published, so that the archive has
# newer ones of some; a release may lack one.  None of them makes a cluster or starts a
# daemon, which could change the network of the machine.  When it is used later, its
# archive's lists are out of date, and are not kept.
make_debian() {
    local root=$1 release=$2 script=/usr/share/debootstrap/scripts/$2 mirror
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    mkdir -p "${root%/*}"
    update_lists
    mirror=$(archive) || die "this machine has no archive of Debian's"
    # what debootstrap mounts is gone with it
    unshare --mount debootstrap --variant=minbase "$release" "$root" "$mirror" "$script"
    apt-config dump | grep '^Acquire::\(http\|https\|Check\)' >"$root/etc/apt/apt.conf.d/90host" || [ $? -eq 1 ]
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/91cache"
    inside "$root" bash -euc '
        mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/shedlock.conf
        printf "%s\n" "#!/bin/sh" "exit 101" >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            $(for name; do ! apt-cache show "$name" >/dev/null 2>&1 || echo "$name"; done)
        apt-get clean
        rm -r /var/lib/apt/lists/* /etc/postgresql-common/createcluster.d /usr/sbin/policy-rc.d
        rmdir --ignore-fail-on-non-empty /etc/postgresql-common' make_debian "${@:3}"
    archives '$(LABEL) $(REPO_URI)' |
        sed -n "s/^Debian \(.*\)/deb \1 $release-updates main/p; s/^Debian-Security \(.*\)/deb \1 $release-security main/p" \
            >>"$root/etc/apt/sources.list"
}

# Runs a function of the script in a new folder, with processes, mounts and shared memory of
# its own, and removes the folder.  A server that is killed leaves its shared memory.
alone() {
    local dir=$WORK/alone
    rm -rf --one-file-system "$dir"
    mkdir "$dir"
    ROOT=$ROOT CACHE=$CACHE WORK=$WORK unshare --mount --ipc --pid --fork --kill-child --mount-proc bash -euc "$(declare -f)"'
        set -o pipefail
        trap "exit 143" TERM
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        cd "$1"
        "${@:2}"' alone "$dir" "$@"
    rm -rf --one-file-system "$dir"
}
