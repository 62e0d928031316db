# scripts/packages.sh - where scripts get programs and PostgreSQL from; sourced by lib.sh
#
# No PostgreSQL of the machine is ever installed, upgraded, started or stopped.
# An installed server is used if its headers have the same version and pg_cron is
# installed, too, unless the archive has none for it.  Otherwise current packages
# are downloaded with lists of their own, without root and without a lock of
# apt's, and unpacked into WORK/pg: Debian's servers find their files from wherever
# they are.  Only programs that have nothing to do with PostgreSQL are installed,
# by root, after saying so.

# Where what takes long to make or to fetch is kept
CACHE=${SHEDLOCK_CACHE:-/var/cache/shedlock}
[ "$EUID" -eq 0 ] || CACHE=${SHEDLOCK_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/shedlock}
CACHE=$(realpath -m -- "$CACHE")
PG_MAJOR=${PG_MAJOR:-}
PG_BIN=${PG_BIN:-}
# Environment that programs of WORK/pg need
PG_ENVIRONMENT=()
PERL_PATH=
# Is PG_BIN from the environment?
PG_OWN=${PG_BIN:+yes}

package_installed() {
    # a line for each architecture
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -x installed >/dev/null
}

#
# Programs
#

# Installs the named packages that are missing; says nothing when none is.  What
# follows "--" can be done without: only root gets it.
require_programs() {
    local name log=$WORK/apt.log missing=()
    for name; do
        case $name in
            --) [ "$EUID" -eq 0 ] || break ;;
            *) package_installed "$name" || missing+=("$name") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$EUID" -eq 0 ] || die "these packages are missing, and only root can install them:
    apt-get install --no-install-recommends ${missing[*]}"
    say "Will be installed with apt-get, with what they depend on:"
    say "    ${missing[*]}"
    # An archive that has nothing to do with it may be out of order.
    update_system_lists || true
    apt-get -s install --no-install-recommends "${missing[@]}" >>"$log" 2>&1 ||
        die "apt-get cannot install ${missing[*]}: $(why_apt_failed "$log")"
    refuse_to_touch_servers "$log"
    # dpkg must come to its end.  Ctrl-C goes to the whole foreground, so apt-get has a
    # session of its own, and its reader ignores the signal; the script ends afterwards.  It
    # ends its children by SIGTERM, which apt-get and dpkg ignore.
    # tee reads on when nobody reads the script's output any more.
    NEEDRESTART_MODE=l DEBIAN_FRONTEND=noninteractive env --ignore-signal=HUP,INT,QUIT,TERM setsid --wait \
        apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}" \
        </dev/null 2>&1 | (
        trap '' HUP INT TERM
        tee -p "$log" | sed -uEn 's/^(Need to get|After this|Unpacking|Setting up)/    &/p' || true
    ) ||
        die "apt-get could not install ${missing[*]}: $(why_apt_failed "$log")"
}

# apt waits for the lock of dpkg, not for that of the lists.
update_system_lists() {
    local log=$WORK/apt.log try
    say "Fetching the lists of packages (apt-get update)"
    for try in {1..30}; do
        # it would leave files in /tmp if Ctrl-C ended it
        ! setsid --wait apt-get -qq -o APT::Update::Error-Mode=any -o Acquire::Retries=3 update \
            </dev/null >"$log" 2>&1 || return 0
        grep -q '^E: Could not get lock' "$log" || return 1
        sleep 2
    done
    return 1
}

# Prints why a command of apt's failed that has said what is in file $1.
why_apt_failed() {
    grep -E '^[EW]: ' "$1" || tail -n 20 "$1"
}

# File $1 is a plan of apt-get.  The package of a server starts its clusters when it
# is configured, and restarts them when it is upgraded; that of the C library
# restarts them when a new one comes (see its postinst).
refuse_to_touch_servers() {
    local changes
    changes=$(sed -nE -e 's/^(Inst|Conf|Remv|Purg) (postgresql[^ ]*) .*/\2/p' \
        -e 's/^(Inst (libpq5[^ ]*) \[|(Remv|Purg) (libpq5[^ ]*) ).*/\2\4/p' "$1" | sort -u
        # with the same version before the "-" it is an update of Debian's
        sed -n 's/^Inst \(libc6\) \[\([^] ]*\)-[^]]*\] (\([^ ]*\)-.*/\1 \2 \3/p' "$1" | awk '$2 != $3 { print $1 }')
    [ -z "$changes" ] || die "that would change $(echo $changes), and could start or restart a PostgreSQL of this machine.
Please do that yourself, then try again: apt-get install $(echo $changes)"
}

#
# Archives
#

# Fetches the lists unless they are of today, or "again".  Without network older
# ones serve, and an archive that has nothing to do with it may be out of order.
update_lists() {
    local dir=$CACHE/apt log=$WORK/lists.log
    if [ "${1:-}" != again ] && [ -n "$(find "$dir/updated" "$WORK/lists.old" -mtime -1 2>/dev/null)" ] &&
        apt-cache "${PRIVATE_APT[@]}" show postgresql-common >/dev/null 2>&1; then
        return
    fi
    need_space "$CACHE" 150
    say "Fetching the lists of packages into $dir"
    mkdir -p "$dir/state/lists/partial" "$dir/archives/partial"
    if TMPDIR=$WORK apt-get "${PRIVATE_APT[@]}" -qq -o APT::Update::Error-Mode=any update >"$log" 2>&1; then
        touch "$dir/updated"
    elif apt-cache "${PRIVATE_APT[@]}" show postgresql-common >/dev/null 2>&1; then
        say "Not all lists can be fetched; what is there must do"
        touch "$WORK/lists.old"
    else
        die "postgresql${PG_MAJOR:+-$PG_MAJOR}, -client, -server-dev and -cron cannot be fetched: $(why_apt_failed "$log")"
    fi
}

# Is there a package of that name, installed or in the archive?
package_known() {
    package_installed "$1" && return
    apt-cache "${PRIVATE_APT[@]}" show "$1" >/dev/null 2>&1
}

# Prints what $1, a format of apt-get indextargets, says of each archive of
# Debian's that this machine gets packages from.
archives() {
    apt-get "${PRIVATE_APT[@]}" indextargets --format "$1" 'Created-By: Packages' 'Origin: Debian' | sort -u
}

# Prints the address of the one that has them all.
archive() {
    archives '$(LABEL) $(REPO_URI)' | sed -n 's/^Debian //p' | sed -n 1p | grep .
}

# Another command of the same user may be at work in the cache.
with_cache_locked() {
    (
        flock 9
        "$@"
    ) 9>"$CACHE/lock"
}

#
# PostgreSQL
#

# Prints the major versions of servers that are installed with headers of the
# same version, the highest last.
installed_postgres() {
    local header major version
    for header in /usr/include/postgresql/*/server/pg_config.h; do
        major=${header#/usr/include/postgresql/}
        major=${major%%/*}
        version=$(sed -n 's/^#define PG_VERSION "\(.*\)"/\1/p' "$header" 2>/dev/null)
        case $("/usr/lib/postgresql/$major/bin/postgres" --version 2>/dev/null) in
            "postgres (PostgreSQL) $version" | "postgres (PostgreSQL) $version "*) say "$major" ;;
        esac
    done | sort -n
}

# Sets PG_MAJOR: the highest that is installed with its headers or, if none is, that
# of this release of Debian.  PG_MAJOR in the environment takes precedence, and so
# does PG_BIN, the programs of another build.
choose_postgres() {
    if [ -n "$PG_BIN" ]; then
        [ -x "$PG_BIN/pg_config" ] || die "PG_BIN: there is no pg_config in $PG_BIN"
        PG_BIN=$(realpath -- "$PG_BIN")
        PG_MAJOR=$("$PG_BIN/pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
    fi
    if [ -z "$PG_MAJOR" ]; then
        PG_MAJOR=$(installed_postgres | awk '$1 >= 15' | tail -n 1)
    fi
    if [ -z "$PG_MAJOR" ]; then
        with_cache_locked update_lists
        PG_MAJOR=$(apt-cache "${PRIVATE_APT[@]}" depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p') || true
    fi
    [[ $PG_MAJOR =~ ^[0-9]+$ && $PG_MAJOR -ge 15 ]] || die "shedlock needs PostgreSQL 15 or newer, not \"$PG_MAJOR\""
}

# Where the cache cannot be written, this run has one of its own.  What apt is
# told: lists and a cache of our own, which need no root and wait for nobody.
use_cache() {
    local dir
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
        die "this needs Debian 12 or newer; elsewhere use the Dockerfile"
    if ! mkdir -p "$CACHE" 2>/dev/null || ! { : >>"$CACHE/lock"; } 2>/dev/null; then
        CACHE=$WORK/cache
        mkdir "$CACHE"
    fi
    dir=$CACHE/apt
    PRIVATE_APT=(-o "Dir::State=$dir/state" -o Dir::State::status=/var/lib/dpkg/status -o "Dir::Cache=$dir"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1 -o Acquire::Languages=none
        -o Acquire::GzipIndexes=true -o Acquire::Retries=3 -o APT::Sandbox::User=)
}

# Sets PG_BIN and makes the server, its headers and pg_cron usable, and the other
# packages that are named; those after "--" only if the archive has them.
require_postgres() {
    local name optional= pg_cron=postgresql-$PG_MAJOR-cron wanted=()
    if [ -z "$PG_BIN" ] && installed_postgres | grep -qx "$PG_MAJOR" &&
        { package_installed "$pg_cron" || [ -e "/usr/lib/postgresql/$PG_MAJOR/lib/pg_cron.so" ] ||
            { with_cache_locked update_lists || exit; ! package_known "$pg_cron"; }; }; then
        PG_BIN=/usr/lib/postgresql/$PG_MAJOR/bin
    fi
    if [ -z "$PG_BIN" ]; then
        PG_BIN=$WORK/pg/usr/lib/postgresql/$PG_MAJOR/bin
        set -- "postgresql-$PG_MAJOR" "postgresql-client-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR" libpq5 \
            libpq-dev "$@" -- "$pg_cron"
    fi
    for name; do
        if [ "$name" = -- ]; then
            optional=yes
        elif ! is_usable "$name"; then
            [ ${#wanted[@]} -gt 0 ] || with_cache_locked update_lists
            if [ -z "$optional" ] || package_known "$name"; then
                wanted+=("$name")
            fi
        fi
    done
    [ ${#wanted[@]} -eq 0 ] || unpack_packages "${wanted[@]}"
}

# Is the package installed, and of use?  One for a server is of use for that of
# the machine only; a build of one's own has what it has.
is_usable() {
    case $1 in
        postgresql-*) [ -z "$PG_OWN" ] || return 0 ;;
    esac
    package_installed "$1" || return
    case $1 in
        postgresql-* | libpq*) [ "${PG_BIN#/usr/}" != "$PG_BIN" ] ;;
    esac
}

# Unpacks packages and what they need that this machine has not into WORK/pg.
unpack_packages() {
    local tree=$WORK/pg file
    with_cache_locked fetch_packages "$@"
    mkdir -p "$tree"
    while read -r file; do
        # without llvmjit.so, which would need LLVM for the first costly query
        dpkg-deb --fsys-tarfile "$CACHE/debs/$file" | tar -x -C "$tree" --no-same-owner \
            --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
            --exclude='./usr/share/postgresql/*/man/*' --exclude='./usr/lib/postgresql/*/lib/bitcode/*' \
            --exclude='*/llvmjit.so' || {
            rm -f "$CACHE/debs/$file"
            die "$CACHE/debs/$file could not be unpacked into $tree and was removed; please try again"
        }
    done <"$WORK/debs"
    chmod -R a+rX "$tree"
    # Python's ctypes looks for a library by the name that it is linked by.
    for file in "$tree"/usr/lib/*-linux-gnu*/libpq.so.5; do
        [ ! -e "$file" ] || ln -sf libpq.so.5 "${file%.5}"
    done
    PERL_PATH=$(join_paths "$tree"/usr/share/perl5 "$tree"/usr/lib/*-linux-gnu*/perl5/*)
    PG_ENVIRONMENT=("LD_LIBRARY_PATH=$(join_paths "$tree"/usr/lib/*-linux-gnu* "$tree"/lib/*-linux-gnu*)"
        "PERL5LIB=$PERL_PATH" "PYTHONPATH=$tree/usr/lib/python3/dist-packages"
        "NODE_PATH=$tree/usr/share/nodejs:/usr/share/nodejs"
        "CLASSPATH=$tree/usr/share/java/postgresql.jar:/usr/share/java/postgresql.jar")
}

# Prints paths as PATH has them.
join_paths() {
    local IFS=:
    say "$*"
}

# Makes sure that the packages, and what they need, are in CACHE/debs; writes the
# names of their files to WORK/debs.  If the archive no longer has a file, the lists
# are out of date and are fetched again.
fetch_packages() {
    fetch_listed "$@" || { update_lists again && fetch_listed "$@"; } ||
        die "these packages cannot be fetched: $*: $(why_apt_failed "$WORK/fetch.log")"
}

# With the lists as they are.
fetch_listed() {
    local log=$WORK/fetch.log debs=$CACHE/debs new file name missing=()
    with_dependencies "$@" >"$WORK/wanted" 2>"$log" &&
        xargs -a "$WORK/wanted" apt-get "${PRIVATE_APT[@]}" download --print-uris >"$WORK/uris" 2>>"$log" || return 1
    awk '{ print $2 }' "$WORK/uris" >"$WORK/debs"
    mkdir -p "$debs"
    while read -r file; do
        [ -e "$debs/$file" ] || missing+=("${file%%_*}")
    done <"$WORK/debs"
    [ ${#missing[@]} -gt 0 ] || return 0
    say "Fetching ${#missing[@]} packages into $debs, to be unpacked, not installed"
    # of runs that were killed: nobody else fetches now
    rm -rf "$debs"/new.*
    new=$(mktemp -d "$debs/new.XXXXXX")
    remove_at_end "$new"
    (cd "$new" && TMPDIR=$WORK apt-get "${PRIVATE_APT[@]}" -qq download "${missing[@]}") >>"$log" 2>&1 || { rm -rf "$new"; return 1; }
    for file in "$new"/*.deb; do
        # other versions of it are of no use any more
        name=${file##*/}
        rm -f "$debs/${name%%_*}"_*.deb
        mv "$file" "$debs/"
    done
    rmdir "$new"
}

# Prints the names of packages and of those libraries and modules that they need
# and this machine does not have.  The C library and the like are the machine's
# own; a package with headers, or one that excludes what is installed, is taken for
# itself.
with_dependencies() {
    local name plan planned=()
    for name; do
        case $name in
            postgresql-server-dev-* | libpq-dev | node-*) ;;
            *) planned+=("$name") ;;
        esac
    done
    [ ${#planned[@]} -eq 0 ] || plan=$(apt-get "${PRIVATE_APT[@]}" -s install --no-install-recommends "${planned[@]}") ||
        return 1
    {
        printf '%s\n' "$@"
        # without what is of another architecture
        sed -n 's/^Inst \([^ :]*\) .*/\1/p' <<<"${plan:-}" | grep -E '^(lib|postgresql-[0-9]|python3-)' |
            grep -vE '^(lib(llvm|z3|python|perl5|c6|c-l10n|c-bin|gcc-s1|stdc\+\+|crypt1|ncurses-dev)|python3-minimal)' ||
            [ $? -eq 1 ]
    } | sort -u
}
