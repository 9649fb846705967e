"""Translates the keyword arguments of install() into a vmm_config."""
from __future__ import annotations

import ctypes
import os

from . import _interrupts, _layout, _library, _sizes

_ALL_DEVICES = 0xFFFFFFFFFFFFFFFF
_kept = []  # what the library holds pointers to
_taken: dict = {}  # variables that the settings took out of the environment
_passed = (_layout.Config(), 0.0)  # what the library has

# Arguments that have a variable. The library reads the variable where a field is zero, but zero may also be what
# the argument says.
_VARIABLES = {"limit": "VMM_LIMIT", "footprint": "VMM_FOOTPRINT", "reuse": "VMM_REUSE",
              "compaction": "VMM_COMPACTION", "decay_ms": "VMM_DECAY_MS", "no_caching": "VMM_NO_CACHING",
              "ipc": "VMM_SHAREABLE", "neighbours": "VMM_NEIGHBOURS"}


def configure(**given):
    """Checks the settings of install() and passes them to the library. The variable of each argument that is
    not None is removed from the environment, and restored when later settings do not give that argument. Returns a
    function that takes all of it back, which the library allows until a cache exists.

    Raises ValueError or TypeError for an invalid argument, VmmError if the library refuses the settings or a cache
    exists already; then nothing has changed.
    """
    global _taken, _passed
    config, share = translated(**given)
    library = _library.load()
    taken, passed = _taken, _passed
    names = {name for argument, name in _VARIABLES.items() if given.get(argument) is not None}
    before = {name: os.environ[name] for name in _VARIABLES.values() if name in os.environ}
    found = {**_taken, **before}

    def undo() -> None:
        global _taken, _passed
        # The library tries settings together with the environment: those of before may need its old variables, or may
        # need that a wrong one is away.
        library.vmm_torch_configure(ctypes.byref(passed[0]))
        _variables_set(before)
        library.vmm_torch_configure(ctypes.byref(passed[0]))
        library.vmm_torch_limit_share(passed[1])
        _taken, _passed = taken, passed

    _kept.append(config)
    if config.pressure:
        _library.end_with_python("vmm_torch_pressure_end")
    _variables_set({name: found[name] for name in found.keys() - names})
    try:
        _library.check(library.vmm_torch_configure(ctypes.byref(config)), "the settings were refused")
        _library.check(library.vmm_torch_limit_share(share), "the limit was refused")
    except BaseException:
        undo()
        raise
    _taken, _passed = {name: found[name] for name in found.keys() & names}, (config, share)
    return undo


def _variables_set(values: dict) -> None:
    """Sets these of the variables in the environment, and removes the others."""
    for name in _VARIABLES.values():
        os.environ.pop(name, None)
    os.environ.update(values)


def translated(limit=None, footprint=None, reuse=None, compaction=None, decay_ms=None,
               decay_keep=None, decay_thread=None, no_caching=None, peers="auto",
               pressure=None, ipc=None, neighbours=None) -> tuple:
    """The vmm_config, and the limit as a share of the device, or 0. Raises ValueError or TypeError."""
    config = _layout.Config()
    bytes_, share = _sizes.parse(limit)
    config.limit_bytes = bytes_ or 0
    config.footprint_permille = _footprint(footprint)
    config.reuse = _choice("reuse", reuse, _layout.REUSE)
    config.compaction = _choice("compaction", compaction, _layout.COMPACTION)
    config.decay_ms = number("decay_ms", decay_ms, 0xFFFFFFFF)
    config.decay_keep_bytes = _size("decay_keep", decay_keep)
    config.decay_thread = switch("decay_thread", decay_thread)
    config.no_caching = switch("no_caching", no_caching)
    config.peer_devices = _peers(peers)
    config.shareable = switch("ipc", ipc)
    config.neighbours = switch("neighbours", neighbours)
    if pressure is not None:
        config.pressure = _pressure(pressure)
    return config, share or 0.0


def _size(name: str, value) -> int:
    bytes_, share = _sizes.parse(value)
    if share is not None:
        raise ValueError(f"{name} must be a size such as '1GiB', not a share")
    return bytes_


def _footprint(value) -> int:
    if value == "any":
        return _layout.FOOTPRINT_ANY
    if isinstance(value, (float, str)):
        raise TypeError(f"footprint must be a whole number of thousandths (10 is 1 %) or 'any', not {value!r}")
    return number("footprint", value, 1000)


def number(name: str, value, most: int) -> int:
    return 0 if value is None else _sizes.count(name, value, most)


def switch(name: str, value) -> int:
    if value not in (None, False, True):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    if value is None:
        return 0
    return _layout.ON if value else _layout.OFF


def _choice(name: str, value, choices: dict) -> int:
    if value is None:
        return 0
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")
    return choices[value]


def _peers(peers) -> int:
    """Bits of the devices that may use each other's memory."""
    if peers == "auto":
        return _ALL_DEVICES
    if peers is not None and not isinstance(peers, (list, tuple, set, range)):
        raise TypeError(f"peers must be 'auto', a list of device ordinals or None, not {peers!r}")
    mask = 0
    for device in peers or ():
        mask |= 1 << _sizes.count("peers", device, 63)
    return mask


def _pressure(ask):
    """Wraps a Python function that takes a number of bytes and returns whether it freed some."""
    if not callable(ask):
        raise TypeError(f"pressure must be a function that takes a number of bytes, not {ask!r}")

    def call(_, wanted):
        return int(bool(ask(wanted)))
    _interrupts.watch(call)
    return _layout.PRESSURE_FN(call)
