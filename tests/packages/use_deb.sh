#!/bin/sh
# Makes the packages of Debian, unpacks them into an empty folder and uses them there:
#   use_deb.sh CPACK CMAKE BUILD CONFIG WORK USE_PACKAGE CONSUMER LIBDIR CC CXX
set -eu
cpack=$1 cmake=$2 build=$3 config=$4 work=$5 use_package=$6 consumer=$7 libdir=$8 cc=$9
shift 9
cxx=$1

fail() {
    echo "error: $1" >&2
    exit 1
}

"$(dirname "$0")/make_deb.sh" "$cpack" "$build" "$config" "$work"
mkdir "$work/root"
for name in libvmmcache0.2 libvmmcache-dev vmmcache-tools; do
    file=$(find "$work/packages" -maxdepth 1 -name "${name}_*.deb")
    [ -n "$file" ] || fail "there is no package $name"
    [ -n "$(dpkg-deb -f "$file" Version)" ] || fail "$file has no version"
    dpkg-deb -x "$file" "$work/root"
done

# What the packages need is what Debian's are: the C library is among it, nothing of the build tree is.
needs() {
    dpkg-deb -f "$work"/packages/"$1"_*.deb Depends
}
needs libvmmcache0.2 | grep -q libc6 || fail "libvmmcache0.2 does not depend on libc6"
[ "$(dpkg-deb -f "$work"/packages/libvmmcache0.2_*.deb Recommends)" = zlib1g ] ||
    fail "libvmmcache0.2 does not recommend zlib1g, which recordings with .gz open"
needs libvmmcache-dev | grep -q "libvmmcache0.2 (= " || fail "libvmmcache-dev does not depend on its library"
needs vmmcache-tools | grep -q zlib1g || fail "vmmcache-tools does not depend on zlib1g"
if grep -rIlF -e "$build" "$work/root"; then
    fail "the files above name the build tree"
fi

prefix=$work/root/usr
"$use_package" cmake "$cmake" "$consumer" "$prefix" "$libdir" "$work/cmake" "$cc" "$cxx"
"$use_package" pkgconfig "$cmake" "$consumer" "$prefix" "$libdir" "$work/pkgconfig" "$cc" "$cxx"
"$use_package" fragtest "$prefix"
if [ -f "$build/src/torch/libvmmcache_torch.so" ]; then
    "$use_package" python "$prefix" "$(command -v python3)"
fi
"$prefix/bin/vmmtop" --version >/dev/null || fail "vmmtop ended with status $?"
trace=$(find "$prefix/share/vmmcache/traces" -name 'gnn*' | head -n 1)
env -u PYTHONPATH "$prefix/bin/vmmcache-report" "$trace" -o "$work/page.html" >/dev/null
grep -q '</html>' "$work/page.html" || fail "the report is no page"
for page in man1/fragtest.1 man1/vmmcache-report.1 man1/vmmtop.1; do
    [ -f "$prefix/share/man/$page" ] || [ -f "$prefix/share/man/$page.gz" ] || fail "$page is missing"
done
if [ -f "$build/src/preload/libvmmcache_preload.so" ]; then
    LD_PRELOAD="$prefix/$libdir/libvmmcache_preload.so" /bin/true || fail "the preload library cannot be loaded"
fi
