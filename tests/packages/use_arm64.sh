#!/bin/sh
# Makes the packages of a cross-build, which must be for the processor that it is for, and need that one's C library:
#   use_arm64.sh CPACK BUILD CONFIG WORK
set -eu
cpack=$1 build=$2 config=$3 work=$4

fail() {
    echo "error: $1" >&2
    exit 1
}

"$(dirname "$0")/make_deb.sh" "$cpack" "$build" "$config" "$work"
library=$(find "$work/packages" -maxdepth 1 -name "libvmmcache0.2_*_arm64.deb")
[ -n "$library" ] || fail "no package says arm64: $(ls "$work/packages")"
[ "$(dpkg-deb -f "$library" Architecture)" = arm64 ] || fail "$library is for $(dpkg-deb -f "$library" Architecture)"
dpkg-deb -f "$library" Depends | grep -q libc6 || fail "$library does not depend on libc6"
