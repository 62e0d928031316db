# scripts/engine.sh - a Docker engine of a script's own; sourced by bash after lib.sh
#
# The engine is in a small Debian that has Docker, not installed on the machine, which may have
# another one.  It and its containers have processes, mounts, shared memory and a network of
# their own.  Whatever ends it, the kernel removes them with the last process, and with
# them the engine's bridges and rules.  Only empty cgroups are left, which end_engine removes.
#
# Containers reach archives through slirp4netns, a process that makes connections for them.
# They do not reach what listens on the machine's own address 127.0.0.1.

# Makes the small Debian of the engine.
need_engine() {
    cached_debian "$CACHE/engine" "${RELEASE[18]}" docker.io docker-cli docker-buildx docker-compose slirp4netns \
        iproute2 systemd-standalone-sysusers
}

# Starts an engine in the small Debian and runs a function there: for alone.  It begins in a folder that
# can be written, which has a copy of the tree.  The cache is /srv.
with_engine() {
    local engine=$PWD/engine pid limits
    mkdir engine work work/tree
    tree | tar -C work/tree -xf -
    mount --bind "$CACHE/engine" engine
    mount -o remount,bind,ro engine
    mount -t proc proc engine/proc
    # an engine raises limits of the kernel, which are no part of any network
    for limits in fs kernel vm; do
        mount --bind "engine/proc/sys/$limits" "engine/proc/sys/$limits"
        mount -o remount,bind,ro "engine/proc/sys/$limits"
    done
    mount --rbind /dev engine/dev
    mount -t tmpfs -o mode=755 tmpfs engine/run
    mount -t tmpfs -o mode=1777 tmpfs engine/tmp
    mount -t tmpfs -o mode=755 tmpfs engine/opt
    mount --bind work engine/mnt
    mount --bind "$CACHE" engine/srv
    mount -o remount,bind,ro engine/srv
    # that of the Debian is as old as the Debian
    mount --bind "$(realpath /etc/resolv.conf)" engine/etc/resolv.conf
    mkfifo connected
    unshare --net --mount bash -euc "$(declare -f)"'
        enter_engine "$@"' with_engine "$engine" "${WORK##*/}" "$@" &
    pid=$!
    until [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.1
    done
    chroot engine slirp4netns --configure --mtu=1500 --disable-host-loopback --ready-fd=3 "$pid" tap0 \
        >network.log 2>&1 3>connected &
    wait "$pid"
}

# In the network of the engine: makes the Debian in folder $1 the root of all mounts.  chroot
# would not do, since "docker exec" would enter the root of the machine.
# The system's files are those of this network.  They lack AppArmor's, so that the engine
# gives the kernel no profile, which would stay.
enter_engine() {
    local engine=$1
    shift
    read -rN 1 _ <connected || { cat network.log; exit 1; }
    mount -t sysfs sysfs "$engine/sys"
    mount --rbind /sys/fs/cgroup "$engine/sys/fs/cgroup"
    cd "$engine"
    pivot_root . .
    umount -l .
    cd /mnt
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 TERM=xterm bash -euc "$(declare -f)"'
        set -o pipefail
        beside_engine "$@"' with_engine "$@"
}

# In the Debian: starts an engine whose containers are in cgroup $1, and runs a function.
beside_engine() {
    local engine
    dockerd --data-root "$PWD/docker" --cgroup-parent="/$1" --exec-opt native.cgroupdriver=cgroupfs --dns 10.0.2.3 >engine.log 2>&1 &
    engine=$!
    until docker info >info 2>&1; do
        kill -0 "$engine" 2>/dev/null && [ "$SECONDS" -lt 600 ] || { tail -n 1 engine.log; exit 1; }
        sleep 0.2
    done
    "${@:2}"
}

# Imports the small Debian $1 of the cache as image $2.
import() {
    tar -C "/srv/$1" -c . | docker import - "$2" >/dev/null
}

# Removes the cgroups that an engine has left.
end_engine() {
    local group
    for group in /sys/fs/cgroup{,/*}/"${WORK##*/}"; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} +
    done
}
