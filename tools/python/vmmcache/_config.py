"""What caches are made with: the keyword arguments of install() as a vmm_config."""
from __future__ import annotations

import atexit
import ctypes
import os

from . import _interrupts, _layout, _library, _sizes

_ALL_DEVICES = 0xFFFFFFFFFFFFFFFF
_LIMIT = "VMM_LIMIT"
_replaced = None  # while a share stands there: (what the program had,)
_kept = []  # what the library holds pointers to


def configure(limit=None, footprint=None, sharing=None, compaction=None, decay_ms=None,
              decay_keep=None, decay_thread=False, no_caching=False, peers="auto",
              pressure=None) -> None:
    """Checks the settings and hands them to the library.

    Raises ValueError or TypeError for what makes no sense, VmmError if a cache was made already.
    """
    config = _layout.Config(struct_size=ctypes.sizeof(_layout.Config))
    bytes_, share = _sizes.parse(limit)
    config.limit_bytes = bytes_ or 0
    config.footprint_permille = _footprint(footprint)
    config.sharing = _choice("sharing", sharing, _layout.SHARING)
    config.compaction = _choice("compaction", compaction, _layout.COMPACTION)
    config.decay_ms = _number("decay_ms", decay_ms, 0xFFFFFFFF)
    config.decay_keep_bytes = _size("decay_keep", decay_keep)
    config.decay_thread = _switch("decay_thread", decay_thread)
    config.no_caching = _switch("no_caching", no_caching)
    config.peer_devices = _peers(peers)
    if pressure is not None:
        config.pressure = _pressure(pressure)
    status = _library.load().vmm_torch_configure(ctypes.byref(config))
    _library.check(status, "the settings were refused")
    if pressure is not None:
        atexit.register(_library.load().vmm_torch_pressure_end)  # it must not call Python once that has ended
    _kept.append(config)
    _share_set(share)


def _share_set(share) -> None:
    """A limit that is a share of devices that nobody has opened yet is left to the library, by its environment;
    what stood there comes back with settings that have none."""
    global _replaced
    if _replaced is not None:
        before, = _replaced
        os.environ.pop(_LIMIT, None)
        if before is not None:
            os.environ[_LIMIT] = before
    _replaced = None if share is None else (os.environ.get(_LIMIT),)
    if share is not None:
        os.environ[_LIMIT] = f"{share * 100:.12f}%"


def _size(name: str, value) -> int:
    bytes_, share = _sizes.parse(value)
    if share is not None:
        raise ValueError(f"{name} is a size such as '1GiB', not a share")
    return bytes_


def _footprint(value) -> int:
    if value == "any":
        return _layout.FOOTPRINT_ANY
    return _number("footprint", value, 1000)


def _number(name: str, value, most: int) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if not 0 <= value <= most:
        raise ValueError(f"{name}={value} lies outside 0 to {most}")
    return value


def _switch(name: str, value) -> int:
    if value not in (False, True):
        raise TypeError(f"{name} is True or False, not {value!r}")
    return int(value)


def _choice(name: str, value, choices: dict) -> int:
    if value is None:
        return 0
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r}: one of {', '.join(map(repr, choices))}")
    return choices[value]


def _peers(peers) -> int:
    """Bits of the devices that may use each other's memory."""
    if peers == "auto":
        return _ALL_DEVICES
    mask = 0
    for device in peers or ():
        mask |= 1 << _number("peers", device, 63)
    return mask


def _pressure(ask):
    """Wraps a function of Python that takes bytes and tells whether it freed something."""
    if not callable(ask):
        raise TypeError(f"pressure is a function, not {ask!r}")

    def call(_, wanted):
        return int(bool(ask(wanted)))
    _interrupts.watch(call)
    return _layout.PRESSURE_FN(call)
