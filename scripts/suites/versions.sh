# scripts/suites/versions.sh - suite versions: scripts/test for each PostgreSQL that Debian has
# shellcheck shell=bash disable=SC2034
#
# Each runs in a small Debian of its own, of 0.5 GB.  SUITES="regress tap/crash" names suites
# to run instead of those that scripts/test runs by itself.

PARTS="15 17 18 19"

begin() {
    need_debians
}

part() {
    local root=$CACHE/$1 folder=root/shedlock-$$ lock
    cached_debian "$root" "${RELEASE[$1]}"
    # one at a time works in it
    exec {lock}>>"$root.used"
    flock "$lock"
    # a candidate
    if [ "$1" -ge 19 ]; then
        echo "deb $(archive) experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
        printf '%s\n' "Package: src:postgresql-$1" "Pin: release a=experimental" "Pin-Priority: 900" \
            >"$root/etc/apt/preferences.d/experimental"
    fi
    # removed when this script ends, while another one may use its own
    remove_at_end "$root/$folder"
    rm -rf "$root"/root/shedlock* "$root"/tmp/*
    mkdir "$root/$folder"
    tree | tar -C "$root/$folder" -xf -
    # shellcheck disable=SC2086
    report_tests "" inside "$root" PG_MAJOR="$1" "/$folder/scripts/test" ${SUITES:-}
}
