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
note_of() {
    rm -f "$work/asked"
    VMM_OS_RELEASE=$work/$1 "$setup" "$2" 2>"$work/error" && fail "$2 is missing, and setup.sh accepts that"
    return 0
}
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

# What the build for AArch64 needs: Debian has it, Ubuntu keeps it in another place, and old emulators do not do.
printf 'ID=debian\nVERSION_CODENAME=bookworm\n' >"$work/bookworm"
printf 'ID=debian\nVERSION_CODENAME=trixie\n' >"$work/trixie"
printf 'ID=ubuntu\nVERSION_CODENAME=noble\n' >"$work/noble"
printf '#!/bin/sh\nexit 1\n' >"$work/aarch64-linux-gnu-gcc"
printf '#!/bin/sh\n[ "$1" = --print-foreign-architectures ] || echo "dpkg $*" >>"%s/asked"\n' "$work" >"$work/dpkg"
printf '#!/bin/sh\necho "qemu-aarch64 version 7.2.22 (Debian 1:7.2)"\n' >"$work/qemu-aarch64-static"
chmod +x "$work/aarch64-linux-gnu-gcc" "$work/dpkg" "$work/qemu-aarch64-static"

note_of trixie aarch64-libs
grep -q -- '--add-architecture arm64' "$work/asked" || fail "it did not add arm64: $(cat "$work/asked")"
grep -q 'install .* libcmocka-dev:arm64 zlib1g:arm64' "$work/asked" || fail "it asked for: $(cat "$work/asked")"
note_of noble aarch64-libs
grep -q 'ports.ubuntu.com/ubuntu-ports noble' "$work/error" || fail "it said: $(cat "$work/error")"
grep -q 'add-architecture\|install' "$work/asked" && fail "on Ubuntu it asked for: $(cat "$work/asked")"
note_of bookworm qemu-aarch64
grep -q 'install .* qemu-user-static/bookworm-backports' "$work/asked" || fail "it asked for: $(cat "$work/asked")"
note_of trixie qemu-aarch64
grep -q 'install .* qemu-user-static$' "$work/asked" || fail "it asked for: $(cat "$work/asked")"
printf '#!/bin/sh\necho "qemu-aarch64 version 8.1.0"\n' >"$work/qemu-aarch64-static"
rm -f "$work/asked"
"$setup" qemu-aarch64 || fail "an emulator that is new enough is refused"
[ ! -e "$work/asked" ] || fail "with an emulator it asked for: $(cat "$work/asked")"
