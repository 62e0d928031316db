# scripts/suites/machines.sh - suite machines: the demo and the tests on machines of several kinds
# shellcheck shell=bash disable=SC2034
#
#	a    Debian 12, bare
#	b    Debian 12 with PostgreSQL of an older minor version, its cluster down
#	c    the same, its cluster running on port 5432
#	d    Debian 13, bare
#	e    Debian 12 with Python and compilers, an ordinary user without sudo
#	f    the same with a read-only home, TMPDIR elsewhere, and a blank in the path
#
# A machine is a fresh copy of a small Debian, in which the commands are alone
# with their processes and files, but for the network.  Each runs scripts/demo and
# scripts/test, then both again, the second time with a choice of suites; b, c and
# f take that choice at once.  SUITES in the environment are taken in place of all, or
# of the choice at once.  Then nothing may be left but Debian's packages and what is kept for
# the next time; where there was a PostgreSQL, it is the same, and so are its clusters.

PARTS="a b c d e f"
# The second time
CHOICE="regress tap/crash"

# What may be there at the end that was not at the beginning, or not so, but for
# the files of packages, and alternatives: regular expressions.
KEPT='(/var/cache|/home/dev/\.cache)/shedlock(/.*)?
/home/dev/\.cache
/var/lib/(dpkg|apt)/.*
/var/cache/(apt|debconf|ldconfig)/.*
/var/log/(alternatives\.log|dpkg\.log|apt/.*)
/etc/(alternatives/.*|hosts|inputrc|ld\.so\.cache|networks)
/usr/(lib|share)/python3[^ ]*/__pycache__(/.*)?
(/etc/python3|/var/lib/python|/usr/local/lib/python3[^/]*)(/.*)?'

# What follows, up to machine(), runs in the machine.

# Prints a line for each file and each piece of shared memory.
files() {
    {
        find / /dev/shm -xdev -ignore_readdir_race ! -lname '/etc/alternatives/*' \
            \( -type d -printf '%p\t%m %U %G\n' -o -printf '%p\t%m %U %G %s %T@ %l\n' \)
        awk '{ print "shared memory " $2 "\t" }' /proc/sysvipc/shm
    } | sort
}

# Prints the programs that run, but for this one and the machine's cluster.
processes() {
    local server=none own=$BASHPID
    ! read -r server 2>/dev/null </var/lib/postgresql/*/main/postmaster.pid || :
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v own="$own" -v server="$server" '
        { line = $0; pid = $1; sub(/.*\) /, "") }
        $1 != "Z" && pid != 1 && pid != own && $2 != own && pid != server && $2 != server { print line }'
}

packages() {
    dpkg-query -W -f '${db:Status-Status} ${binary:Package} ${Version}\n' | sed -n 's/^installed //p' | sort
}

# Prints the programs that run, PostgreSQL's packages, and what can be seen of the machine's clusters.
state() {
    processes
    packages | grep -E '^(postgresql|libpq)' || [ $? -eq 1 ]
    [ -e /usr/bin/pg_lsclusters ] || return 0
    pg_lsclusters -h
    ! pg_lsclusters -h | grep -q online || {
        head -n 1 /var/lib/postgresql/*/main/postmaster.pid
        runuser -u postgres -- psql -X -At -c "SELECT version(), pg_postmaster_start_time(), count(*), md5(string_agg(t::text, ',' ORDER BY i)),
            (SELECT array_agg(datname::text ORDER BY 1) FROM pg_database),
            (SELECT array_agg(rolname::text ORDER BY 1) FROM pg_roles) FROM kept t"
    }
}

# Runs a command of the tree, with what a login gives.
run() {
    local enter=()
    [ "$USER" = root ] || enter=(setpriv "--reuid=$USER" "--regid=$USER" --init-groups --)
    report_tests "$1" "${enter[@]}" env -i -C "$TREE" "HOME=$HOME" "USER=$USER" "LOGNAME=$USER" LANG=C.UTF-8 \
        PATH=/usr/local/bin:/usr/bin:/bin ${TMPDIR:+"TMPDIR=$TMPDIR"} "$@"
}

# Are the two texts $2 and $3 the same?
same() {
    local verdict=ok
    diff <(say "$2") <(say "$3") >&2 || verdict="not ok"
    say "= $verdict $1: nothing else than before"
}

# Prints the files that packages of list $2 brought which are not in list $1.
# Packages name folders that are symbolic links by now.
files_of_new() {
    comm -13 <(say "$1") <(say "$2") | while read -r name _; do
        cat "/var/lib/dpkg/info/$name.list" 2>/dev/null || cat "/var/lib/dpkg/info/${name%:*}.list"
    done | sed -E 's,^/(bin|sbin|lib[0-9a-z]*)/,/usr&,'
}

machine() {
    local files packages state left USER=root HOME=/root TREE=/root/shedlock TMPDIR=
    set -o pipefail
    trap 'exit 143' TERM
    case $1 in
        b | c)
            say "= ok has $(dpkg-query -W -f '${Package} ${Version}' "postgresql-$(ls /usr/lib/postgresql)")"
            pg_createcluster "$(ls /usr/lib/postgresql)" main
            ;;&
        c)
            pg_ctlcluster "$(ls /usr/lib/postgresql)" main start
            runuser -u postgres -- psql -X -q -c "CREATE TABLE kept AS SELECT i, md5(i::text) FROM generate_series(1, 1000) i"
            ;;
        e | f)
            USER=dev HOME=/home/dev TREE=/home/dev/shedlock
            useradd --create-home dev
            ;;&
        f)
            TMPDIR=/srv/temporary TREE="/srv/a path/shedlock"
            install -d -o dev "$TMPDIR"
            mount --bind "$HOME" "$HOME"
            mount -o remount,bind,ro "$HOME"
            ;;
    esac
    mkdir -p "$TREE"
    tar -C "$TREE" -xf -
    chown -R "$USER:" "$TREE"

    files=$(files)
    packages=$(packages)
    state=$(state)
    run scripts/demo
    run scripts/test $2
    run scripts/demo
    run scripts/test $3
    # the last process of a session may need a moment
    sleep 1
    same "processes, clusters and PostgreSQL's packages" "$state" "$(state)"
    left=$(comm -3 <(say "$files") <(files) | sed 's/^\t//; s/\t.*//' | sort -u |
        grep -vxFf <(files_of_new "$packages" "$(packages)") | grep -vxE "$KEPT") || [ $? -eq 1 ]
    # a server at work writes
    [ "$1" != c ] || left=$(grep -vE '^/(var/lib|var/log|run)/postgresql/' <<<"$left") || [ $? -eq 1 ]
    same files "" "$left"
    say "= ok $(comm -13 <(say "$packages") <(packages) | wc -l) packages installed"
}

begin() {
    case " $* " in
        *" c "*) ! (exec 3<>/dev/tcp/127.0.0.1/5432) 2>/dev/null || die "port 5432 is taken, which machine c needs" ;;
    esac
    need_debians
}

part() {
    local dir=$WORK/$1 release=bookworm packages= suites=${SUITES:-} base
    case $1 in
        b | c) packages=postgresql suites=${SUITES:-$CHOICE} ;;
        d) release=trixie ;;
        e | f) packages="python3 gcc make libc6-dev perl" ;;&
        f) suites=${SUITES:-$CHOICE} ;;
    esac
    base=$CACHE/machine-$release${packages:+-${packages%% *}}
    # shellcheck disable=SC2086
    cached_debian "$base" "$release" $packages
    cp -a --reflink=auto "$base" "$dir"
    tree | inside "$dir" bash -euc "$(declare -f); KEPT=\$4; machine \"\$@\"" machine "$1" "$suites" "$CHOICE" "$KEPT"
    rm -rf --one-file-system "$dir"
}
