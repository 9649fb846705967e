#!/usr/bin/env python3
"""Makes a wheel of the package vmmcache and its shared library: no compiler is needed to install it.

usage: wheel.py CONTENTS VERSION FOLDER

CONTENTS has what `cmake --install BUILD --component python` installs. Writes
FOLDER/vmmcache-VERSION-py3-none-linux_MACHINE.whl and prints its path. The same contents give the same bytes.
"""
import base64
import hashlib
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
LICENSE = os.path.join(HERE, "..", "..", "LICENSE")
LIBRARY = os.path.join("vmmcache", "libvmmcache_torch.so")
MACHINES = {62: "x86_64", 183: "aarch64"}  # of ELF: EM_X86_64, EM_AARCH64
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip can tell


def machine(library):
    """The processor that the library was built for, as Python calls it: what its ELF header says at byte 18."""
    with open(library, "rb") as file:
        head = file.read(20)
    number = int.from_bytes(head[18:20], "little")
    if head[:4] != b"\x7fELF" or number not in MACHINES:
        sys.exit("wheel.py: %s is no library for %s" % (library, " or ".join(MACHINES.values())))
    return MACHINES[number]


def tag(library):
    """Any Python 3, no binary interface of it, the library's processor."""
    return "py3-none-linux_" + machine(library)


def metadata(version):
    return "\n".join((
        "Metadata-Version: 2.1",
        "Name: vmmcache",
        "Version: " + version,
        "Summary: Device memory for PyTorch and CuPy, without fragmentation",
        "License: MIT",
        "Requires-Python: >=3.9",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3",
        "Description-Content-Type: text/plain",
        "",
        "import vmmcache; vmmcache.install() before the first use of CUDA makes libvmmcache the",
        "allocator of PyTorch. `python -m vmmcache` says whether it would work.",
        ""))


def wheel_file(name_of_tag):
    return "\n".join(("Wheel-Version: 1.0", "Generator: libvmmcache", "Root-Is-Purelib: false",
                      "Tag: " + name_of_tag, ""))


def entry_points():
    return ("[console_scripts]\nvmmcache-report = vmmcache.report:main\n\n"
            "[vllm.general_plugins]\nvmmcache = vmmcache.vllm:register\n")


def contents(folder, version, name_of_tag):
    """{name in the wheel: bytes}, without RECORD."""
    paths = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    info = "vmmcache-%s.dist-info/" % version
    found = {}
    for name, path in [(os.path.relpath(path, folder), path) for path in paths] + [(info + "LICENSE", LICENSE)]:
        with open(path, "rb") as file:
            found[name] = file.read()
    found[info + "METADATA"] = metadata(version).encode()
    found[info + "entry_points.txt"] = entry_points().encode()
    found[info + "WHEEL"] = wheel_file(name_of_tag).encode()
    return found


def record(found, version):
    """The name and text of RECORD: a hash and a size for each file but itself."""
    name = "vmmcache-%s.dist-info/RECORD" % version
    lines = []
    for path, data in sorted(found.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append("%s,sha256=%s,%d" % (path, digest, len(data)))
    return name, "\n".join(lines + [name + ",,", ""])


def write(path, found, record_name, record_text):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*sorted(found.items()), (record_name, record_text.encode())]:
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)


def main(installed, version, folder):
    name_of_tag = tag(os.path.join(installed, LIBRARY))
    found = contents(installed, version, name_of_tag)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "vmmcache-%s-%s.whl" % (version, name_of_tag))
    write(path, found, *record(found, version))
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
