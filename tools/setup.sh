#!/usr/bin/env bash
# Installs the packages that a build needs and this machine does not have, with apt-get (Debian, Ubuntu).
#
# usage: tools/setup.sh NEED...
#   "?" after a need: continue without it if it cannot be installed.
# Each need has a probe; only needs whose probe fails are installed. Prints nothing if all are present.
set -euo pipefail

known="cc cxx make cmake python3 pkg-config zlib cmocka benchmark clang valgrind chromium ncurses microhttpd dpkg-dev"

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

probe() {
    case $1 in
    cc) compiles "${CC:-cc}" c stdio.h ;;
    cxx) compiles "${CXX:-c++}" c++ string ;;
    make | cmake | python3 | pkg-config | clang | valgrind) command -v "$1" >/dev/null 2>&1 ;;
    chromium) [ -n "${VMM_CHROMIUM:-}" ] || command -v chromium google-chrome >/dev/null 2>&1 ;;
    dpkg-dev) command -v dpkg-shlibdeps >/dev/null 2>&1 ;;
    zlib) compiles "${CC:-cc}" c zlib.h -fsyntax-only ;;
    ncurses) compiles "${CC:-cc}" c curses.h -fsyntax-only ;;
    microhttpd) compiles "${CC:-cc}" c microhttpd.h -fsyntax-only ;;
    cmocka) compiles "${CC:-cc}" c cmocka.h -fsyntax-only ;;
    benchmark) compiles "${CXX:-c++}" c++ benchmark/benchmark.h -fsyntax-only ;;
    esac
}

package() {
    case $1 in
    cc) echo gcc libc6-dev ;;
    cxx) echo g++ ;;
    zlib) echo zlib1g-dev ;;
    ncurses) echo libncurses-dev ;;
    microhttpd) echo libmicrohttpd-dev ;;
    cmocka) echo libcmocka-dev ;;
    benchmark) echo libbenchmark-dev ;;
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
        # The names of packages are a list of words, so they are not quoted.
        # shellcheck disable=SC2046
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $(package "${need%\?}") \
            >>"$log" 2>&1 </dev/null || tail -n 3 "$log" >&2
    done
    rm -f "$log"
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
