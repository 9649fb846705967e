#!/bin/sh
# Uses the installed package as its users do. Each word of the first argument is one test:
#   stage CMAKE BUILD CONFIG STAGE PREFIX            installs into STAGE, then moves it to PREFIX
#   cmake CMAKE SOURCE PREFIX LIBDIR WORK CC CXX     find_package(vmmcache), shared and static
#   pkgconfig (the same arguments)                   pkg-config, shared and static
#   fragtest PREFIX                                  runs the installed program on installed data
set -eu

fail() {
    echo "error: $1" >&2
    exit 1
}

stage() { # CMAKE BUILD CONFIG STAGE PREFIX
    rm -rf "$4" "$5"
    "$1" --install "$2" --config "$3" --prefix "$4"
    mv "$4" "$5"
    if grep -rlIF -e "$4" "$5/lib"* "$5/include"; then
        fail "the files above name the directory that they were installed into"
    fi
}

# An example must run, and only the shared one may ask for the shared library.
run_example() { # PROGRAM shared|static
    "$1" >"$1.out" || fail "$1 ended with status $?"
    if ldd "$1" | grep -q libvmmcache; then linked=shared; else linked=static; fi
    [ "$linked" = "$2" ] || fail "$1 is linked as $linked, expected $2"
}

use_cmake() { # CMAKE SOURCE PREFIX LIBDIR WORK CC CXX
    rm -rf "$5"
    "$1" -S "$2/consumer" -B "$5" -DCMAKE_PREFIX_PATH="$3" \
        -DCMAKE_C_COMPILER="$6" -DCMAKE_CXX_COMPILER="$7"
    "$1" --build "$5"
    for language in c cpp; do
        run_example "$5/example_${language}_shared" shared
        run_example "$5/example_${language}_static" static
    done
}

use_pkgconfig() { # CMAKE SOURCE PREFIX LIBDIR WORK CC CXX
    command -v pkg-config >/dev/null ||
        fail "pkg-config is missing (Debian, Ubuntu: apt-get install pkg-config)"
    rm -rf "$5"
    mkdir -p "$5"
    export PKG_CONFIG_PATH="$3/$4/pkgconfig" LD_LIBRARY_PATH="$3/$4"
    pkg-config --print-errors --exists vmmcache || fail "pkg-config does not find vmmcache"
    shared=$(pkg-config --cflags --libs vmmcache)
    static=$(pkg-config --static --cflags --libs vmmcache | sed 's/-lvmmcache/-l:libvmmcache.a/')
    warnings="-Wall -Wextra -Werror"
    # The flags are lists of words.
    # shellcheck disable=SC2086
    for kind in shared static; do
        flags=$shared
        [ "$kind" = shared ] || flags=$static
        "$6" -std=c11 $warnings "$2/example.c" -o "$5/example_c_$kind" $flags
        "$7" -std=c++17 $warnings "$2/example.cpp" -o "$5/example_cpp_$kind" $flags
        run_example "$5/example_c_$kind" "$kind"
        run_example "$5/example_cpp_$kind" "$kind"
    done
}

use_fragtest() { # PREFIX
    cd /
    "$1/bin/fragtest" --driver sim --policy vmmcache --quiet ||
        fail "the installed fragtest ended with status $?"
}

action=$1
shift
case $action in
stage) stage "$@" ;;
cmake) use_cmake "$@" ;;
pkgconfig) use_pkgconfig "$@" ;;
fragtest) use_fragtest "$@" ;;
*) fail "unknown test '$action'" ;;
esac
