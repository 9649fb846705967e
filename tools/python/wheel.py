#!/usr/bin/env python3
"""Makes a wheel of the package vmmcache and its shared library: no compiler is needed to install it.

usage: wheel.py LIBRARY VERSION FOLDER [BUILDS]

Writes FOLDER/vmmcache-VERSION-py3-none-linux_MACHINE.whl and prints its path. The same contents give the
same bytes. BUILDS: a folder with builds of the allocator class, of `python -m vmmcache build`; a process for which one
of them was made need not compile.
"""
import base64
import glob
import hashlib
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
LICENSE = os.path.join(HERE, "..", "..", "LICENSE")
LIBRARY_NAME = "libvmmcache_torch.so"
AT_START = ("vmmcache.pth", "vmmcache_auto.py", "vmmcache/startup/sitecustomize.py")  # what Python reads when it starts
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


def wheel_file(library):
    return "\n".join(("Wheel-Version: 1.0", "Generator: libvmmcache", "Root-Is-Purelib: false",
                      "Tag: " + tag(library), ""))


def entry_points():
    return ("[console_scripts]\nvmmcache-report = vmmcache.report:main\n\n"
            "[vllm.general_plugins]\nvmmcache = vmmcache.vllm:register\n")


def shim_sources():
    """{name in the wheel: path} of what install() compiles against the user's PyTorch."""
    found = {}
    for folder, below, endings in (("src", "torch/shim", (".cpp", ".h")), ("include", "vmmcache", (".h",))):
        path = os.path.join(HERE, "..", "..", folder, below)
        found.update({"vmmcache/shim/%s/%s" % (below, name): os.path.join(path, name)
                      for name in os.listdir(path) if name.endswith(endings)})
    return found


def prebuilt(builds):
    """{name in the wheel: path} of builds of the allocator class."""
    if builds is None:
        return {}
    return {"vmmcache/prebuilt/" + os.path.basename(path): path
            for path in glob.glob(os.path.join(builds, "shim-*.so"))}


def contents(library, version, builds):
    """{name in the wheel: bytes}, without RECORD."""
    package = os.path.join(HERE, "vmmcache")
    paths = {"vmmcache/" + name: os.path.join(package, name)
             for name in os.listdir(package) if name.endswith((".py", ".html"))}
    paths["vmmcache/" + LIBRARY_NAME] = library
    paths.update({name: os.path.join(HERE, name) for name in AT_START})
    paths.update(shim_sources())
    paths.update(prebuilt(builds))
    info = "vmmcache-%s.dist-info/" % version
    paths[info + "LICENSE"] = LICENSE
    found = {}
    for name, path in paths.items():
        with open(path, "rb") as file:
            found[name] = file.read()
    found[info + "METADATA"] = metadata(version).encode()
    found[info + "entry_points.txt"] = entry_points().encode()
    found[info + "WHEEL"] = wheel_file(library).encode()
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


def main(library, version, folder, builds=None):
    found = contents(library, version, builds)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "vmmcache-%s-%s.whl" % (version, tag(library)))
    write(path, found, *record(found, version))
    print(path)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
