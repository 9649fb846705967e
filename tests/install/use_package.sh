#!/bin/sh
# Uses the installed package as its users do. Each word of the first argument is one test:
#   stage CMAKE BUILD CONFIG STAGE PREFIX            installs into STAGE, then moves it to PREFIX
#   cmake CMAKE SOURCE PREFIX LIBDIR WORK CC CXX     find_package(vmmcache), shared and static
#   pkgconfig (the same arguments)                   pkg-config, shared and static
#   fragtest PREFIX                                  runs the installed program on installed data
#   python PREFIX PYTHON                            imports the installed Python package and uses its library
#   components CMAKE BUILD CONFIG PREFIX             each component has its files and no others
#   uninstall CMAKE BUILD CONFIG PREFIX              what was installed is removed
#   subproject CMAKE SOURCE WORK CC                  add_subdirectory(), without a C++ compiler
set -eu

fail() {
    echo "error: $1" >&2
    exit 1
}

number() { # PREFIX MAJOR|MINOR|PATCH
    sed -n "s/^#define VMM_VERSION_$2 \\([0-9]*\\)$/\\1/p" "$1/include/vmmcache/vmmcache.h"
}

# Before 1.0 the soname carries the minor version, too.
soname_check() { # PREFIX
    expected=$(number "$1" MAJOR)
    [ "$expected" != 0 ] || expected=0.$(number "$1" MINOR)
    for library in "$1"/lib*/libvmmcache*.so; do
        case $library in *_preload.so) continue ;; esac # no program links it
        readelf -d "$library" | grep -qF "soname: [$(basename "$library").$expected]" ||
            fail "the soname of $library does not end in .$expected"
    done
}

stage() { # CMAKE BUILD CONFIG STAGE PREFIX
    rm -rf "$4" "$5"
    "$1" --install "$2" --config "$3" --prefix "$4"
    mv "$4" "$5"
    soname_check "$5"
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

# The package loads the library of its own prefix, and brings what it compiles against a PyTorch.
use_python() { # PREFIX PYTHON
    cd /
    said=$(env -u VMMCACHE_LIBRARY VMM_DRIVER=sim PYTHONPATH="$1/share/vmmcache/python" "$2" -B -c "
import os, vmmcache
from vmmcache import _build, _library
with vmmcache.Cache() as cache:
    cache.alloc(4096).free()
prefix = os.path.realpath('$1')
assert os.path.realpath(_library.path()).startswith(prefix + '/lib'), _library.path()
assert all(folder.startswith(prefix) for folder in _build._sources()), _build._sources()
print(vmmcache.version())") || fail "the installed Python package cannot be used"
    expected=$(number "$1" MAJOR).$(number "$1" MINOR).$(number "$1" PATCH)
    [ "$said" = "$expected" ] || fail "the Python package has the library $said, expected $expected"
}

install_component() { # CMAKE BUILD CONFIG PREFIX COMPONENT
    "$1" --install "$2" --config "$3" --prefix "$4/$5" --component "$5" >/dev/null
}

# has PREFIX PATTERN...: each names a file.
has() {
    folder=$1
    shift
    for pattern; do
        [ -n "$(find "$folder" -path "$folder/$pattern")" ] || fail "$folder has no $pattern"
    done
}

has_no() { # PREFIX PATTERN...
    folder=$1
    shift
    for pattern; do
        [ -z "$(find "$folder" -path "$folder/$pattern")" ] || fail "$folder has $pattern"
    done
}

components() { # CMAKE BUILD CONFIG PREFIX
    rm -rf "$4"
    for component in runtime development; do
        install_component "$1" "$2" "$3" "$4" "$component"
    done
    has "$4/runtime" 'lib*/libvmmcache.so.*'
    has_no "$4/runtime" 'include*' '*.a' '*.so' '*.pc' 'bin*' 'share*'
    has "$4/development" 'include/vmmcache/vmmcache.h' 'lib*/libvmmcache.so' 'lib*/libvmmcache.a' \
        'lib*/cmake/vmmcache/vmmcacheConfig.cmake' 'lib*/pkgconfig/vmmcache.pc'
    has_no "$4/development" 'bin*' 'share*' 'lib*/libvmmcache.so.*'
    install_component "$1" "$2" "$3" "$4" tools
    if [ -x "$2/bin/fragtest" ]; then
        has "$4/tools" 'bin/fragtest' 'share/vmmcache/traces/*'
        has_no "$4/tools" 'lib*/libvmmcache.*' 'include*'
    fi
    if [ -f "$2/src/preload/libvmmcache_preload.so" ]; then
        has "$4/tools" 'lib*/libvmmcache_preload.so'
    fi
}

uninstall() { # CMAKE BUILD CONFIG PREFIX
    rm -rf "$4"
    "$1" --install "$2" --config "$3" --prefix "$4" >/dev/null
    [ -n "$(find "$4" -type f)" ] || fail "nothing was installed"
    "$1" --build "$2" --target uninstall >/dev/null
    [ -z "$(find "$4" ! -type d)" ] || fail "not removed: $(find "$4" ! -type d)"
    uninstall_among_files "$1" "$2" "$3" "$4/of vmmcache [1]"
}

# What others put into its folders stays, and so do these folders; CMake would take their name for a pattern.
uninstall_among_files() { # CMAKE BUILD CONFIG PREFIX
    "$1" --install "$2" --config "$3" --prefix "$4" >/dev/null
    : >"$4/include/other.h"
    "$1" --build "$2" --target uninstall >/dev/null
    left=$(cd "$4" && find . | sort | tr '\n' ' ')
    [ "$left" = ". ./include ./include/other.h " ] || fail "left in $4: $left"
}

# The other project links what BUILD_SHARED_LIBS asks for.
subproject() { # CMAKE SOURCE WORK CC
    rm -rf "$3"
    mkdir -p "$3/source"
    cp "$2/tests/install/example.c" "$3/source/"
    cat >"$3/source/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.21)
project(parent LANGUAGES C)
add_subdirectory("$2" vmmcache)
add_executable(example example.c)
target_link_libraries(example PRIVATE vmmcache::vmmcache)
if(TARGET vmmcache_torch OR TARGET fragtest OR TARGET uninstall OR CMAKE_BUILD_TYPE)
  message(FATAL_ERROR "the subproject does what it was not asked for")
endif()
END
    # One folder: each time other libraries are linked, from the same objects.
    for libraries in -UBUILD_SHARED_LIBS -DBUILD_SHARED_LIBS=ON -DBUILD_SHARED_LIBS=OFF; do
        kind=shared
        [ "$libraries" != -DBUILD_SHARED_LIBS=OFF ] || kind=static
        "$1" -S "$3/source" -B "$3/build" -DCMAKE_C_COMPILER="$4" -DCMAKE_CXX_COMPILER=/nonexistent \
            -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O0 -Wno-cpp" $libraries >/dev/null
        "$1" --build "$3/build" --target example >/dev/null
        run_example "$3/build/example" "$kind"
        has_no "$3/build/vmmcache" vmmcacheConfig.cmake
    done
    "$1" -S "$3/source" -B "$3/build" -UBUILD_SHARED_LIBS -DVMM_INSTALL=ON >/dev/null
    "$1" --build "$3/build" >/dev/null
    "$1" --install "$3/build" --prefix "$3/prefix" >/dev/null
    has "$3/prefix" 'include/vmmcache/vmmcache.h' 'lib*/libvmmcache.a'
}

action=$1
shift
case $action in
stage) stage "$@" ;;
cmake) use_cmake "$@" ;;
pkgconfig) use_pkgconfig "$@" ;;
fragtest) use_fragtest "$@" ;;
python) use_python "$@" ;;
components) components "$@" ;;
uninstall) uninstall "$@" ;;
subproject) subproject "$@" ;;
*) fail "unknown test '$action'" ;;
esac
