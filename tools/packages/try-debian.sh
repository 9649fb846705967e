#!/usr/bin/env bash
# Installs libvmmcache in a clean Debian 12, uses it there, and prints what passed. Needs root, debootstrap and a network:
# it takes the mirror that apt uses on this machine. No test of ctest runs it.
#
# usage: tools/packages/try-debian.sh deb|install WORK [CUDA_INCLUDE]
#   deb       builds the packages on this machine, which must be Debian 12 too, and installs them there with apt-get
#   install   builds from a copy of the sources there, and installs with `cmake --install` into /usr/local
# WORK keeps the clean system for the next run. CUDA_INCLUDE is the folder of cuda.h, which Debian does not have: without
# it `install` builds neither the driver of GPUs nor the preload library. Exits with 1 if something failed.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=bookworm
failed=0

die() {
    echo "error: $1" >&2
    exit 2
}

{ [ $# = 2 ] || [ $# = 3 ]; } && { [ "$1" = deb ] || [ "$1" = install ]; } ||
    die "usage: tools/packages/try-debian.sh deb|install WORK [CUDA_INCLUDE]"
[ "$(id -u)" = 0 ] || die "it needs root, for chroot"
command -v debootstrap >/dev/null || die "debootstrap is missing (Debian, Ubuntu: apt-get install debootstrap)"
mkdir -p "$2"
mode=$1 work=$(cd "$2" && pwd) cuda=${3:-}
root=$work/$mode
log=$work/$mode.log
: >"$log"

unmount() {
    for folder in dev/shm proc; do
        mountpoint -q "$root/$folder" && umount "$root/$folder"
    done
    true
}
trap unmount EXIT

inside() { # COMMAND: in the clean system, with nothing of this one's environment
    chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive sh -ec "cd /root && $1"
}

try() { # WHAT COMMAND
    local verdict=PASS
    echo "--- $1: $2" >>"$log"
    inside "$2" >>"$log" 2>&1 </dev/null || verdict=FAIL
    [ $verdict = PASS ] || failed=1
    printf '| %s | %s |\n' "$1" $verdict
}

clean_system() {
    local mirror
    mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $suite" | head -n 1)
    [ -n "$mirror" ] || die "apt has no mirror of $suite"
    if [ ! -f "$work/base/complete" ]; then
        rm -rf "$work/base"
        debootstrap --variant=minbase "$suite" "$work/base" "$mirror" >>"$log" 2>&1 || die "debootstrap failed: $log"
        touch "$work/base/complete"
    fi
    unmount
    rm -rf "$root"
    cp -a "$work/base" "$root"
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/dev/shm"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside "apt-get update" >>"$log" 2>&1 || die "apt-get update failed: $log"
}

packages_build() {
    cmake -S "$home" -B "$work/build" -DVMM_BUILD_TESTS=OFF -DVMM_BUILD_BENCH=OFF -DCMAKE_INSTALL_PREFIX=/usr \
        -DCMAKE_BUILD_TYPE=Release
    cmake --build "$work/build" -j 2
    rm -f "$work/build"/*.deb
    (cd "$work/build" && cpack -G DEB)
}

install_deb() {
    packages_build >>"$log" 2>&1 || die "the packages were not built: $log"
    mkdir "$root/root/packages"
    cp "$work/build"/*.deb "$root/root/packages"
    try "\`apt-get install ./*.deb\`" "apt-get install -y --no-install-recommends ./packages/*.deb"
    try "what a program is compiled with: gcc, pkg-config, python3" \
        "apt-get install -y --no-install-recommends gcc libc6-dev pkg-config python3"
}

install_sources() {
    mkdir "$root/root/source"
    git -C "$home" archive HEAD | tar -x -C "$root/root/source"
    if [ -n "$cuda" ]; then
        mkdir -p "$root/usr/local/cuda/include"
        cp -r "$cuda/cuda.h" "$cuda/nvtx3" "$root/usr/local/cuda/include"
    fi
    try "what a build needs: gcc, g++, make, cmake, zlib, ncurses, libmicrohttpd" \
        "apt-get install -y --no-install-recommends gcc g++ make cmake pkg-config python3 zlib1g-dev libncurses-dev \
            libmicrohttpd-dev"
    try "build" "cmake -S source -B build -DVMM_BUILD_TESTS=OFF -DVMM_BUILD_BENCH=OFF -DCMAKE_BUILD_TYPE=Release &&
        cmake --build build -j 2"
    try "\`cmake --install\`, \`ldconfig\`" "cmake --install build && ldconfig"
}

use() {
    cp "$home/tests/install/example.c" "$home/tools/packages/hold.c" "$root/root"
    try "the C example of the README, with pkg-config" \
        'cc example.c -o example $(pkg-config --cflags --libs vmmcache) && ./example'
    try "the same, recorded" "VMM_TRACE=run.trace ./example && grep -q '^+ 1 67108864 0' run.trace"
    try "fragtest replays that trace" "fragtest --trace run.trace"
    try "fragtest finds the traces that are installed" "fragtest --trace gnn --policy vmmcache"
    try "vmmcache-report makes a page of the trace" "vmmcache-report run.trace -o run.html && grep -q '</html>' run.html"
    try "a program to look at" 'cc hold.c -o hold $(pkg-config --cflags --libs vmmcache)'
    try "vmmtop --json shows it" "mkfifo end
        VMM_MONITOR=1 ./hold <end & exec 9>end; sleep 1
        vmmtop --json \$! | grep '\"allocated_bytes\":8388608'"
    try "vmmcache-report PID shows it, from samples" "rm -f end; mkfifo end
        VMM_MONITOR=1 ./hold <end & exec 9>end; sleep 1
        vmmcache-report \$! -o samples.html --seconds 1 && grep -q '\"kind\":\"samples\"' samples.html"
    try "vmmcache-report PID shows it, from its recording" "rm -f end; mkfifo end
        VMM_TRACE=hold.trace ./hold <end & exec 9>end; sleep 1
        vmmcache-report \$! -o hold.html && grep -q '\"kind\":\"trace\"' hold.html"
    try "manual pages" 'for page in fragtest vmmtop vmmcache-report; do
        ls /usr/share/man/man1/$page.1* /usr/local/share/man/man1/$page.1* 2>/dev/null | grep .; done'
    if [ "$mode" = install ] && [ -z "$cuda" ]; then
        echo "| the preload library | not built: no cuda.h |"
        return
    fi
    try "the preload library is found" \
        "LD_PRELOAD=libvmmcache_preload.so /bin/true 2>errors; test ! -s errors || { cat errors; false; }"
}

remove() {
    if [ "$mode" = deb ]; then
        try "\`apt-get purge\`" "apt-get purge -y 'libvmmcache*' vmmcache-tools"
    else
        try "\`cmake --build build --target uninstall\`" "cmake --build build --target uninstall"
    fi
    try "nothing is left" "! find /usr -name '*vmmcache*' -not -path '*/__pycache__*' | grep ."
}

clean_system
echo "Debian $(cat "$root/etc/debian_version"), $(uname -m), $mode"
echo
echo "| what | |"
echo "|---|---|"
if [ "$mode" = deb ]; then install_deb; else install_sources; fi
use
remove
[ $failed = 0 ] || echo "Something failed: see $log" >&2
exit $failed
