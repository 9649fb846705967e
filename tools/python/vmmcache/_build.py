"""Compiles the allocator class (src/torch/shim) against the PyTorch of this process.

A build lies in a folder of the user, or in the wheel, and is named by what it depends on: PyTorch, its C++ ABI, the C
library, our sources. One process compiles, others wait for it; a build appears under its name as a whole. It ends with
its digest: what a disk that was full or lost its power left would end the process when it is loaded, and is compiled
anew.
"""
from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess

from ._errors import VmmError

EARLIEST = (2, 9)  # the first version of PyTorch whose class this is
CACHE = "VMMCACHE_CACHE"
STANDARDS = ("c++17", "c++20")  # PyTorch's headers need the second one since 2.12
COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS = 900
_DIGEST_BYTES = 32

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_CHECKOUT = os.path.join(_PACKAGE, "..", "..", "..")


class NativeError(VmmError):
    """The allocator class cannot be used; the message says what is missing."""


def built(torch) -> str:
    """The path of the shared library of the allocator class, which is compiled if it is not there. Raises
    NativeError."""
    with _refusals():
        path, sources = _place(torch)
        prebuilt = _prebuilt(path)
        if _is_whole(prebuilt):
            return prebuilt
        if not _is_there(path):
            _make_folder(os.path.dirname(path))
            with _locked(path + ".lock"):
                if not _is_there(path):  # another process may have made it meanwhile
                    _compile(torch, sources, path)
    return path


def is_built(torch) -> bool:
    """Whether install() need not compile. Raises NativeError if it could not."""
    with _refusals():
        path, _ = _place(torch)
        if _is_whole(_prebuilt(path)) or _is_there(path):
            return True
        _compiler(), _cuda_folders(torch)
    return False


@contextlib.contextmanager
def _refusals():
    """What the system refuses is a reason for the plug-in, too."""
    try:
        yield
    except OSError as error:
        raise NativeError(f"its build failed: {error}") from error


def _place(torch) -> tuple:
    """Where the build lies, and the folders of our sources."""
    _demand_version(torch)
    sources = _sources()
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    if not os.path.isdir(os.path.join(include, "c10")):
        raise NativeError(f"PyTorch's headers are missing in {include}")
    name = f"shim-{_plain(torch.__version__)}-{_key(torch, sources)}.so"
    return os.path.join(_folder(), name), sources


def _demand_version(torch) -> None:
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found is None:
        raise NativeError(f"the version of PyTorch {str(torch.__version__)!r} is unknown")
    if tuple(map(int, found.groups())) < EARLIEST:
        raise NativeError(f"PyTorch {torch.__version__} is older than {'.'.join(map(str, EARLIEST))}")


def _sources() -> list:
    """Folders of the sources, in the order in which the compiler searches them: in wheels beside this file."""
    packed = os.path.join(_PACKAGE, "shim")
    folders = [packed] if os.path.isdir(packed) else [os.path.join(_CHECKOUT, name) for name in ("src", "include")]
    if not os.path.exists(os.path.join(folders[0], "torch", "shim", "shim.cpp")):
        raise NativeError(f"the sources of the allocator class are missing in {os.path.normpath(folders[0])}")
    return [os.path.normpath(folder) for folder in folders]


def source_files(folders: list) -> list:
    """The files that a build consists of."""
    patterns = ("torch/shim/*.cpp", "torch/shim/*.h", "vmmcache/*.h")
    return sorted((path for folder in folders for pattern in patterns
                   for path in glob.glob(os.path.join(glob.escape(folder), pattern))), key=os.path.basename)


def _key(torch, sources: list) -> str:
    told = [torch.__version__, str(getattr(torch.version, "git_version", "")), str(_cxx11_abi(torch)),
            platform.machine(), " ".join(platform.libc_ver())]
    digest = hashlib.sha256("\n".join(told).encode())
    for path in source_files(sources):
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + file.read())
    return digest.hexdigest()[:20]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]", "_", text)


def _cxx11_abi(torch) -> int:
    tell = getattr(torch, "compiled_with_cxx11_abi", None)
    return int(tell()) if tell is not None else 1


# ---- The folder


def _folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.abspath(os.environ.get(CACHE) or os.path.join(cache, "vmmcache"))


def _make_folder(folder: str) -> None:
    """Makes the folder, if there is none. Refuses one that is not the user's own."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise NativeError(f"the folder of builds cannot be made ({error}); {CACHE} names another one") from error
    _demand_owner(folder, (os.getuid(),))


def _prebuilt(path: str) -> str:
    """Where a wheel has the build of that name."""
    return os.path.join(_PACKAGE, "prebuilt", os.path.basename(path))


def _is_there(path: str) -> bool:
    """Whether there is a whole build that no other user could have put there."""
    if not os.path.exists(path):
        return False
    _demand_trusted(path)
    return _is_whole(path)


def _is_whole(path: str) -> bool:
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        data = file.read()
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


def _seal(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())
        file.flush()
        os.fsync(file.fileno())


def _demand_trusted(path: str) -> None:
    """Refuses a build that other users than this one and root could have put there: it is loaded into this process."""
    for name in (os.path.dirname(path), path):
        _demand_owner(name, (os.getuid(), 0))


def _demand_owner(name: str, owners: tuple) -> None:
    found = os.stat(name)
    if found.st_uid not in owners or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NativeError(f"other users can write to {name}; {CACHE} names another folder")


@contextlib.contextmanager
def _locked(path: str):
    try:
        file = open(path, "wb")  # it stays: a process that waits for it holds it open
    except OSError as error:
        raise NativeError(f"the folder of builds cannot be written ({error}); {CACHE} names another one") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that forked meanwhile may hold the file open


# ---- The compiler


def _compiler() -> list:
    try:
        given = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise NativeError(f"CXX={os.environ['CXX']} is malformed: {error}") from error
    for command in ([given] if given else [[name] for name in COMPILERS]):
        if shutil.which(command[0]):
            return command
    raise NativeError(f"there is no C++ compiler ({', '.join([given[0]] if given else COMPILERS)})")


def _cuda_folders(torch) -> list:
    """Folders with the headers of CUDA's runtime: those of PyTorch's own packages, else of a toolkit."""
    packages = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))), "nvidia")
    roots = sorted(glob.glob(os.path.join(glob.escape(packages), "*")))
    roots += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += [f"/usr/local/cuda-{torch.version.cuda}", "/usr/local/cuda"]
    found = []
    for header in ("cuda_runtime_api.h", os.path.join("crt", "host_defines.h")):
        folders = [os.path.join(root, "include") for root in roots]
        folder = next((folder for folder in folders if os.path.exists(os.path.join(folder, header))), None)
        if folder is None:
            raise NativeError(f"CUDA's header {header} is missing; set CUDA_HOME to a toolkit, or install the "
                              "packages nvidia-cuda-runtime and nvidia-cuda-crt")
        if folder not in found:
            found.append(folder)
    return found


def _standard_library() -> list:
    """The C++ standard library that this process has loaded. A second one inside the build, which a compiler without
    the shared library links, has locales that are never set up: the first number printed to a stream would crash."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(None, 5)[-1].rstrip("\n") for line in maps if "libstdc++.so" in line}
    return sorted(path for path in loaded if os.path.exists(path))[:1]


def _command(torch, sources: list, standard: str, output: str) -> list:
    root = os.path.dirname(torch.__file__)
    own = [flag for folder in sources for flag in ("-I", folder)]
    theirs = [flag for folder in [os.path.join(root, "include"), *_cuda_folders(torch)]
              for flag in ("-isystem", folder)]
    compiler, *flags = _compiler()
    return [compiler, "-O2", *flags, f"-std={standard}", "-fPIC", "-shared", "-fvisibility=hidden", "-w",
            f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi(torch)}", *own, *theirs,
            os.path.join(sources[0], "torch", "shim", "shim.cpp"), "-o", output,
            *_standard_library(), "-L", os.path.join(root, "lib"), "-lc10_cuda", "-lc10"]


def _compile(torch, sources: list, path: str) -> None:
    for left in glob.glob(glob.escape(path) + ".*.part"):  # by a process that was killed: we hold the lock
        os.unlink(left)
    part = f"{path}.{os.getpid()}.part"
    problem = None
    try:
        for standard in STANDARDS:
            latest = _run(_command(torch, sources, standard, part))
            if latest is None:
                _seal(part)
                os.chmod(part, 0o755)
                os.replace(part, path)
                return
            if problem is None or f"-std={standard}" not in latest:  # else the compiler does not know the standard
                problem = latest
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
    raise NativeError(f"it does not compile against PyTorch {torch.__version__}: {problem}")


def _run(command: list):
    """None, or the first error."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              errors="replace", timeout=COMPILE_SECONDS, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {COMPILE_SECONDS} s"
    if done.returncode == 0:
        return None
    return _first_error(done.stdout.splitlines()) or f"{command[0]} ended with status {done.returncode}"


def _first_error(lines: list) -> str:
    """The line with the first error, else the last line. Where a compiler says only that its linker failed, the line
    before says why."""
    if not lines:
        return ""
    found = next((number for number, line in enumerate(lines) if "error:" in line), len(lines) - 1)
    is_sum = "ld returned" in lines[found] or "linker command failed" in lines[found]
    return lines[found - 1 if is_sum and found > 0 else found].strip()
