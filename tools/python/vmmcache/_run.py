"""`python -m vmmcache run`: starts a Python program that uses vmmcache without saying so."""
from __future__ import annotations

import argparse
import os
import site
import subprocess
import sys

from . import _auto

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PARENT = os.path.dirname(_PACKAGE)
_STARTUP = os.path.join(_PACKAGE, "startup")


def main(arguments: list) -> int:
    given = _parser().parse_args(arguments)
    command = ["-m", *given.module] if given.module else given.program
    if not command or command == ["-m"]:
        _parser().error("there is no program")
    problem = _unreachable()
    if problem is not None:
        print(f"python -m vmmcache run: {problem}", file=sys.stderr)
        return 2
    os.environ.update(_environment(given))
    sys.stdout.flush()
    flags = getattr(subprocess, "_args_from_interpreter_flags", list)()  # such as -X dev
    os.execv(sys.executable, [sys.executable, *flags, *command])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vmmcache run",
        description="Runs a Python program. In it, and in all Python processes that it starts, import torch makes "
        "libvmmcache the allocator of PyTorch, or ends the process with status 1. "
        "Variables such as VMM_LIMIT hold the settings.")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--native", action="store_const", dest="native", const="1",
                       help="the allocator class, or an error")
    kinds.add_argument("--auto", action="store_const", dest="native", const="auto",
                       help="the allocator class if it can be compiled, else the plug-in (default)")
    kinds.add_argument("--plugin", action="store_const", dest="native", const="0", help="the plug-in")
    parser.add_argument("--limit", help="the most physical memory on each device: 8GiB, 80%%")
    parser.add_argument("--plain-graphs", action="store_true", help="as install(plain_graphs=True)")
    parser.add_argument("--memory-saver", action="store_true", help="takes the place of the package torch_memory_saver")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE",
                        help="a module, and its arguments")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a file, and its arguments")
    return parser


def _is_site() -> bool:
    """Whether Python reads vmmcache.pth beside this package when it starts."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return _PARENT in map(os.path.abspath, folders) and os.path.exists(os.path.join(_PARENT, "vmmcache.pth"))


def _unreachable():
    """Why the program would not load vmmcache, or None."""
    if sys.flags.no_site:
        return "with -S, Python does not load it"
    if not _is_site() and sys.flags.ignore_environment:
        return "with -E or -I, Python loads it only if its wheel is installed"
    return None


def _environment(given) -> dict:
    chosen = {_auto.AUTOINSTALL: _auto.STRICT}
    if given.native is not None:
        chosen[_auto.NATIVE] = given.native
    if given.plain_graphs:
        chosen[_auto.PLAIN_GRAPHS] = "1"
    if given.memory_saver:
        chosen[_auto.MEMORY_SAVER] = "1"
    if given.limit is not None:
        chosen["VMM_LIMIT"] = given.limit
    if not _is_site():
        before = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        chosen["PYTHONPATH"] = os.pathsep.join([_STARTUP, *before, *([] if _PARENT in before else [_PARENT])])
    return chosen
