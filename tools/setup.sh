#!/usr/bin/env bash
# Installs the packages that a build needs and this machine does not have, with apt-get (Debian, Ubuntu).
#
# usage: tools/setup.sh NEED...
#   "?" after a need: continue without it if it cannot be installed.
# Each need has a probe; only needs whose probe fails are installed. Prints nothing if all are present.
set -euo pipefail

known="cc cxx make ninja cmake python3 pkg-config zlib cmocka benchmark clang valgrind chromium ncurses microhttpd dpkg-dev"
known+=" aarch64-gcc aarch64-libs qemu-aarch64" # to build for AArch64, and to run that here

# Which system this is: "debian", "bookworm". Empty if it does not say.
system_field() {
    sed -n "s/^$1=//p" "${VMM_OS_RELEASE:-/etc/os-release}" 2>/dev/null | tr -d '"'
}
distribution=$(system_field ID || true)
codename=$(system_field VERSION_CODENAME || true)

die() {
    echo "error: $1" >&2
    exit 1
}

# compiles COMPILER LANGUAGE HEADER [FLAG]: whether a program that includes the header compiles, after the headers that
# cmocka.h requires. The compiler may have arguments, as in CC="ccache gcc".
compiles() {
    local compiler
    read -ra compiler <<<"$1"
    printf '#include <%s>\n' stddef.h stdarg.h stdint.h setjmp.h "$3" |
        cat - <(echo 'int main(void) { return 0; }') |
        "${compiler[@]}" -x "$2" ${4:+"$4"} -o /dev/null - >/dev/null 2>&1
}

# The emulator, not older than 8.1: before, it kept a record of each page of a mapping, and caches map gigabytes.
emulates_large_mappings() {
    local version
    version=$(qemu-aarch64-static --version 2>/dev/null | sed -n 's/.*version \([0-9.]*\).*/\1/p')
    [ -n "$version" ] && [ "$(printf '%s\n' 8.1 "$version" | sort -V | head -n 1)" = 8.1 ]
}

probe() {
    case $1 in
    cc) compiles "${CC:-cc}" c stdio.h ;;
    cxx) compiles "${CXX:-c++}" c++ string ;;
    make | ninja | cmake | python3 | pkg-config | clang | valgrind) command -v "$1" >/dev/null 2>&1 ;;
    chromium) [ -n "${VMM_CHROMIUM:-}" ] || command -v chromium google-chrome >/dev/null 2>&1 ;;
    dpkg-dev) command -v dpkg-shlibdeps >/dev/null 2>&1 ;;
    zlib) compiles "${CC:-cc}" c zlib.h -fsyntax-only ;;
    ncurses) compiles "${CC:-cc}" c curses.h -fsyntax-only ;;
    microhttpd) compiles "${CC:-cc}" c microhttpd.h -fsyntax-only ;;
    cmocka) compiles "${CC:-cc}" c cmocka.h -fsyntax-only ;;
    benchmark) compiles "${CXX:-c++}" c++ benchmark/benchmark.h -fsyntax-only ;;
    aarch64-gcc) compiles aarch64-linux-gnu-gcc c stdio.h ;;
    aarch64-libs)
        compiles aarch64-linux-gnu-gcc c cmocka.h -lcmocka && compiles aarch64-linux-gnu-gcc c stdio.h -l:libz.so.1
        ;;
    qemu-aarch64) emulates_large_mappings ;;
    esac
}

package() {
    case $1 in
    cc) echo gcc libc6-dev ;;
    cxx) echo g++ ;;
    ninja) echo ninja-build ;;
    zlib) echo zlib1g-dev ;;
    ncurses) echo libncurses-dev ;;
    microhttpd) echo libmicrohttpd-dev ;;
    cmocka) echo libcmocka-dev ;;
    benchmark) echo libbenchmark-dev ;;
    aarch64-gcc) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
    aarch64-libs) echo libcmocka-dev:arm64 zlib1g:arm64 ;;
    qemu-aarch64) [ "$distribution $codename" = "debian bookworm" ] && echo qemu-user-static/bookworm-backports || echo qemu-user-static ;;
    *) echo "$1" ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Debian has packages of all architectures in one place. Ubuntu keeps arm64 elsewhere, and apt-get update would fail.
arm64_offer() {
    [[ " $(dpkg --print-foreign-architectures | tr '\n' ' ')" != *" arm64 "* ]] || return 0
    if [ "$distribution" = ubuntu ]; then
        echo "note: Ubuntu has arm64 packages on ports.ubuntu.com only: add 'deb [arch=arm64]" \
            "http://ports.ubuntu.com/ubuntu-ports $codename main universe' to APT's sources, [arch=amd64] to the others," \
            "and run dpkg --add-architecture arm64" >&2
        return 1
    fi
    as_root dpkg --add-architecture arm64 && as_root apt-get update -qq
}

# Debian 12 has a newer emulator among its backports. APT reads them for this one package only.
emulator_install() {
    local folder site
    local options=(-qq)
    if [ "$distribution $codename" = "debian bookworm" ]; then
        folder=$(mktemp -d)
        # shellcheck disable=SC2016
        site=$(apt-get indextargets --format '$(SITE) $(CODENAME)' | sed -n 's/ bookworm$//p' | head -n 1)
        echo "deb ${site:-http://deb.debian.org/debian} bookworm-backports main" >"$folder/list"
        chmod a+rx "$folder"
        mkdir -p "$folder/lists/partial"
        options+=(-o "Dir::Etc::sourcelist=$folder/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists")
        as_root apt-get "${options[@]}" update
    fi
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get "${options[@]}" install -y --no-install-recommends "$(package qemu-aarch64)"
}

# Prints the needs that are missing: "NEED" or "NEED?".
missing() {
    local need
    for need in "$@"; do
        probe "${need%\?}" || echo "$need"
    done
}

# Installs packages. The second round of probes reports those that failed. APT's output goes to the log.
install_packages() {
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -qq >"$log" 2>&1 || true
    for need in "$@"; do
        need_install "${need%\?}" >>"$log" 2>&1 </dev/null || tail -n 3 "$log" >&2
    done
    rm -f "$log"
}

need_install() {
    case $1 in
    qemu-aarch64)
        emulator_install
        return
        ;;
    aarch64-libs) arm64_offer || return ;;
    esac
    # The names of packages are a list of words, so they are not quoted.
    # shellcheck disable=SC2046
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(package "$1")
}

main() {
    local absent need packages=""
    for need in "$@"; do
        [[ " $known " == *" ${need%\?} "* ]] || die "tools/setup.sh does not know the need '$need'"
    done
    mapfile -t absent < <(missing "$@")
    [ "${#absent[@]}" -gt 0 ] || return 0
    for need in "${absent[@]}"; do
        packages+=" $(package "${need%\?}")"
    done
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "note: apt-get is missing; please install:$packages" >&2
    elif [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        echo "note: root or sudo is required to install:$packages" >&2
    else
        echo "== installing$packages"
        install_packages "${absent[@]}"
    fi
    for need in $(missing "${absent[@]}"); do
        case $need in
        *\?) echo "note: continuing without $(package "${need%\?}")" >&2 ;;
        *) die "could not install '$(package "$need")', which is needed to build; please install it" ;;
        esac
    done
}

main "$@"
