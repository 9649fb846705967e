"""Sizes as people write them: 8 GiB, '80%', 0.8."""
from __future__ import annotations

import operator
import re

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
          "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


_MOST = (1 << 64) - 1  # the most bytes that the interface can express


def parse(limit) -> tuple:
    """(bytes, None) of a size, (None, share) of a share of the device; (0, None) of None: no limit.

    A share is a float above 0 and up to 1, or a string such as '80%'; a size an int, or a string such
    as '8GiB'.
    """
    if limit is None:
        return 0, None
    if isinstance(limit, bool) or not isinstance(limit, (int, float, str)):
        raise TypeError(f"a limit must be bytes, a share such as 0.8 or '80%', or None, not {limit!r}")
    if isinstance(limit, float):
        return None, _share(limit, limit)
    if isinstance(limit, int):
        return _bytes(limit, limit), None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)\s*", limit)
    if match is None or (match.group(2) != "%" and match.group(2).upper() not in _UNITS):
        raise ValueError(f"'{limit}' is neither a size such as 8GiB nor a share such as 80%")
    if match.group(2) == "%":
        return None, _share(float(match.group(1)) / 100, limit)
    return _bytes(float(match.group(1)) * _UNITS[match.group(2).upper()], limit), None


def count(name: str, value, most: int = _MOST) -> int:
    """A whole number, of Python or NumPy, that the interface can express: ctypes would cut it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    number = operator.index(value)
    if not 0 <= number <= most:
        raise ValueError(f"{name}={number} is outside 0 to {'2^64 - 1' if most == _MOST else most}")
    return number


def _bytes(count, written) -> int:
    if not 0 <= count <= _MOST:
        raise ValueError(f"the size {written!r} is outside 0 to 2^64 - 1 bytes")
    return int(count)


def _share(share: float, written) -> float:
    if not 0 < share <= 1:
        raise ValueError(f"a share of the device must be above 0 and at most 1 (100%), not {written!r}")
    return share


def text(count: int) -> str:
    """A number of bytes for people: '1.50 GiB'."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.2f} {units[0]}"
