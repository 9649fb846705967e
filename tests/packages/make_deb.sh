#!/bin/sh
# Makes the packages of a build, in the folder `packages` of an empty folder WORK. 77: the tools of Debian are missing.
#   make_deb.sh CPACK BUILD CONFIG WORK
set -eu
cpack=$1 build=$2 config=$3 work=$4

for tool in dpkg-deb dpkg-shlibdeps; do
    command -v "$tool" >/dev/null || {
        echo "skipped: $tool is missing (Debian, Ubuntu: apt-get install dpkg-dev)"
        exit 77
    }
done

rm -rf "$work"
mkdir -p "$work"
# The build is there. Of makefiles CPack would first ask whether each target of it is up to date, which takes longer than
# the packages do; of Ninja it asks nothing.
"$cpack" -G DEB -C "$config" --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja \
    -B "$work/packages" >"$work/cpack.log" 2>&1 || {
    cat "$work/cpack.log"
    echo "error: cpack failed" >&2
    exit 1
}
