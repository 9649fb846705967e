"""Installs vmmcache for a program that does not call install(): see vmmcache_auto and `python -m vmmcache run`."""
from __future__ import annotations

import importlib
import os
import warnings

from . import _install
from ._errors import InstallError, VmmWarning

AUTOINSTALL = "VMMCACHE_AUTOINSTALL"
NATIVE = "VMMCACHE_NATIVE"
PLAIN_GRAPHS = "VMMCACHE_PLAIN_GRAPHS"
PEERS = "VMMCACHE_PEERS"
DECAY_THREAD = "VMMCACHE_DECAY_THREAD"
MEMORY_SAVER = "VMMCACHE_MEMORY_SAVER"

OFF = ("", "0", "off")
QUIET = "VMMCACHE_QUIET"  # set by a process that has warned, for those that it starts
STRICT = "strict"  # AUTOINSTALL: a program for which install() fails must not run
_SWITCH = {"0": False, "1": True, "off": False, "on": True}
_NATIVE = {**_SWITCH, "auto": None}


def install() -> None:
    """Calls install() as the environment says, unless the program has. The processes that this one starts do not repeat
    its warnings. Raises what install() raises, and InstallError for a variable with a wrong value."""
    if _install.is_installed():
        return
    choices = {}
    _read(choices, "native", NATIVE, _NATIVE)
    _read(choices, "plain_graphs", PLAIN_GRAPHS, _SWITCH)
    _read(choices, "decay_thread", DECAY_THREAD, _SWITCH)
    _read_peers(choices)
    with warnings.catch_warnings():
        if os.environ.get(QUIET, "") not in OFF:
            warnings.simplefilter("ignore", VmmWarning)
        _install.install_automatically(**choices)
    if os.environ.get(MEMORY_SAVER, "") not in OFF:
        importlib.import_module("vmmcache.memory_saver").stand_in()
    os.environ[QUIET] = "1"


def is_strict() -> bool:
    """Whether a program for which install() fails must end."""
    return os.environ.get(AUTOINSTALL) == STRICT


def _read(choices: dict, argument: str, name: str, values: dict) -> None:
    value = os.environ.get(name, "")
    if value == "":
        return
    if value not in values:
        raise InstallError(f"{name}={value!r} is not one of {', '.join(values)}")
    choices[argument] = values[value]


def _read_peers(choices: dict) -> None:
    value = os.environ.get(PEERS, "")
    if value in ("", "auto"):
        return
    try:
        choices["peers"] = None if value == "none" else [int(ordinal) for ordinal in value.split(",")]
    except ValueError as error:
        raise InstallError(f"{PEERS}={value!r} is not auto, none or ordinals such as 0,1") from error
