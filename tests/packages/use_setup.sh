#!/bin/sh
# tools/setup.sh asks for what is missing and for nothing else; its apt-get and sudo only note what they are asked for:
#   use_setup.sh SETUP WORK CC
set -eu
setup=$1 work=$2 cc=$3

fail() {
    echo "error: $1" >&2
    exit 1
}

rm -rf "$work"
mkdir -p "$work"
printf '#!/bin/sh\necho "$*" >>"%s/asked"\n' "$work" >"$work/apt-get"
cp "$work/apt-get" "$work/sudo"
chmod +x "$work/apt-get" "$work/sudo"
PATH=$work:$PATH

# A compiler with arguments, as in CC="ccache gcc".
for compiler in "$cc" "$cc -g"; do
    CC=$compiler "$setup" cc cmocka || fail "the compiler '$compiler' is refused"
    [ ! -e "$work/asked" ] || fail "with the compiler '$compiler' it asked for: $(cat "$work/asked")"
done

CC=/nonexistent "$setup" cc 2>"$work/error" && fail "a compiler that is missing is accepted"
grep -q 'install .* gcc libc6-dev' "$work/asked" || fail "it asked for: $(cat "$work/asked")"
grep -q "could not install 'gcc libc6-dev'" "$work/error" || fail "it said: $(cat "$work/error")"
CC=/nonexistent "$setup" "cc?" 2>"$work/error" || fail "a need that is optional is demanded"
