# scripts/suites/package.sh - suite package: what packagers and PGXN do with shedlock
# shellcheck shell=bash disable=SC2034
#
#	bundle  make dist makes a bundle for PGXN, which builds and passes tests outside git
#	15, 17  By the packaging in test/debian the bundle becomes a package for that PostgreSQL,
#	        in a Debian that has it, with Debian's own tools: pg_buildext runs regress and
#	        isolation, lintian looks at the package, autopkgtest tests it when it is
#	        installed, and so do some of the TAP tests.  The program shedlock is in a package
#	        of its own.  Nothing is left when both are purged, and the bundle can be
#	        installed in their place.
#
# What is committed is tested.

PARTS="bundle 15 17"

begin() {
    need_space "$WORK" 5000
    need_debians git unzip gcc libc6-dev make perl tzdata
    choose_postgres
    require_postgres
    # git serves no folder of another owner
    git -c "safe.directory=$ROOT" -C "$ROOT" diff --quiet HEAD || say "Changes that are not committed are not tested"
    VERSION=$(sed -n 's/^\t"version": "\(.*\)",$/\1/p' "$ROOT/META.json")
    BUNDLE=shedlock-$VERSION
    git -c "safe.directory=$ROOT" -C "$ROOT" bundle create --quiet "$WORK/bundle" HEAD --tags
    git -c advice.detachedHead=false clone --quiet "$WORK/bundle" "$WORK/clone"
    chown -R "$RUN_AS:" "$WORK/clone"
    as_user make -s -C "$WORK/clone" PG_CONFIG="$PG_BIN/pg_config" dist
    as_user unzip -q -d "$WORK/tree" "$WORK/clone/$BUNDLE.zip"
}

bundle() {
    echo "= ok make dist: the versions agree, scripts of $(git -c "safe.directory=*" -C "$WORK/clone" tag --list 'v[0-9]*' | wc -l) releases are unchanged"
    as_user unzip -q -d "$WORK/built" "$WORK/clone/$BUNDLE.zip"
    as_user make -s -C "$WORK/built/$BUNDLE" -j "$(nproc)" PG_CONFIG="$PG_BIN/pg_config" with_llvm=no all
    as_user "$WORK/built/$BUNDLE/src/program/shedlock" --version
    as_user make -s -C "$WORK/built/$BUNDLE" PG_CONFIG="$PG_BIN/pg_config" clean
    diff -r "$WORK/tree" "$WORK/built"
    echo "= ok make and make clean outside git, PostgreSQL $PG_MAJOR"
    report_tests "scripts/test outside git:" "$WORK/tree/$BUNDLE/scripts/test" lint regress tap/upgrade-versions
}

# Runs in the Debian, as root; the bundle's folder and version, the major version.
in_debian() {
    local tree=/home/builder/shedlock-$1 version=$1 config=/usr/lib/postgresql/$2/bin/pg_config package=postgresql-$2-shedlock
    # the user that builds, in the source
    builder() {
        setpriv --reuid=builder --regid=builder --init-groups -- \
            env -C "$tree" HOME=/home/builder USER=builder LOGNAME=builder "$@"
    }
    # Do regress and isolation say that all of their tests passed?
    both_passed() {
        cat "$1"
        [ "$(grep -cE '^[ #]*All [0-9]+ tests passed' "$1")" -eq 2 ]
    }
    useradd --create-home builder
    cp -a /home/bundle/. /home/builder
    rm -r /home/bundle
    (cd /home/builder && tar -czf "shedlock_$version.orig.tar.gz" "shedlock-$version")
    cp -a "$tree/test/debian" "$tree/debian"
    printf '%s\n' "shedlock ($version-1) UNRELEASED; urgency=medium" "" "  * Made by scripts/test." "" \
        " -- $(sed -n 's/^Maintainer: //p' "$tree/debian/control.in")  $(date -R)" >"$tree/debian/changelog"
    cp -a "$tree" /home/clean
    chown -R builder: /home/builder

    builder pg_buildext updatecontrol
    builder dpkg-buildpackage -us -uc >/tmp/build.log 2>&1 || { cat /tmp/build.log; exit 1; }
    both_passed /tmp/build.log
    ! grep 'warning: ' /tmp/build.log || exit 1
    echo "= ok dpkg-buildpackage"
    # what a build leaves behind gets into the next one
    builder debian/rules clean
    diff -r --exclude=debian /home/clean "$tree"
    echo "= ok debian/rules clean"
    builder sh -c 'lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs ../shedlock_*.changes'
    echo "= ok lintian"
    apt-get -qq install -y /home/builder/{postgresql-*,shedlock_*,shedlock-dbgsym_*}.deb
    echo "= ok $(dpkg-query -W -f '${Package} ${Version} ' "$package" shedlock) install"
    [ "$(dpkg-query -L "$package" shedlock | grep -E '/(bin|man.)/.' | paste -sd ' ')" = \
        "/usr/bin/shedlock /usr/share/man/man1/shedlock.1.gz" ]
    dpkg-query -W -f '${Depends}' shedlock | grep libpq5 >/dev/null
    [ "$(cd / && shedlock --version)" = "shedlock ${version%.*}" ]
    echo "= ok the program and its man page are in the package shedlock only"
    # as root, other than the build: the server of pg_virtualenv has SSL then
    autopkgtest -B "$tree/" -- null >/tmp/autopkgtest.log 2>&1 || { cat /tmp/autopkgtest.log; exit 1; }
    both_passed /tmp/autopkgtest.log
    echo "= ok autopkgtest"
    builder make -s installcheck REGRESS= ISOLATION= PG_CONFIG="$config" \
        PROVE_TESTS="test/t/fault-crash.pl test/t/upgrade-dump.pl test/t/upgrade-versions.pl"
    echo "= ok TAP files about crashes, dumps and upgrades"
    apt-get -qq purge -y "$package" "$package-dbgsym" shedlock shedlock-dbgsym
    ! find / -xdev -path /home -prune -o -iname '*shedlock*' -print | grep . || exit 1
    echo "= ok is purged without a trace"
    command -v pgxn >/dev/null || { echo "= skip the bundle is not installed: this Debian has no pgxnclient"; return 0; }
    pgxn install --yes --pg_config "$config" "/home/builder/shedlock-$version.zip"
    builder pg_virtualenv -v "$2" psql -X -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION shedlock' \
        -c "SELECT 1 / shedlock_acquire('x')::int, 1 / (NOT shedlock_acquire('x'))::int"
    "$("$config" --bindir)/shedlock" --version
    echo "= ok pgxn installs the bundle"
}

part() {
    local root=$WORK/root-$1
    if [ "$1" = bundle ]; then
        bundle
        return
    fi
    cached_debian "$CACHE/package-$1" "${RELEASE[$1]}" build-essential debhelper postgresql-all lintian \
        autopkgtest libipc-run-perl unzip pgxnclient
    cp -a --reflink=auto "$CACHE/package-$1" "$root"
    mkdir "$root/home/bundle"
    cp -a "$WORK/tree/$BUNDLE" "$WORK/clone/$BUNDLE.zip" "$root/home/bundle/"
    inside "$root" bash -euc "$(declare -f); in_debian \"\$@\"" package "$VERSION" "$1"
}
