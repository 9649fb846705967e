"""Member functions of a C++ class of a library that is loaded: ours in the place of one of theirs.

PyTorch's wrapper of allocators that are plugged in refuses cacheInfo(), which cuDNN's benchmark mode calls,
and has no hook for it. What can be changed is its class's table of virtual functions. The entry is found
by its value, the function's own address, within the bounds that the symbol of the table tells. Where
there is not exactly one such entry nothing is changed.
"""
from __future__ import annotations

import ctypes
import os

_RTLD_DL_SYMENT = 1
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_READ, _WRITE = 1, 2


class _Info(ctypes.Structure):
    """Dl_info"""
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


class _Symbol(ctypes.Structure):
    """Elf64_Sym"""
    _fields_ = [("name", ctypes.c_uint32), ("info", ctypes.c_ubyte), ("other", ctypes.c_ubyte),
                ("section", ctypes.c_uint16), ("value", ctypes.c_uint64), ("size", ctypes.c_uint64)]


def replace(library: str, table: str, function: str, ours: int) -> bool:
    """Puts the address `ours` where the virtual table has the function. Names are mangled ones of a
    library that is loaded; false: something of that was not found, and nothing was changed."""
    if _POINTER_BYTES != 8:
        return False
    try:
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        start, theirs = (_address(loaded, name) for name in (table, function))
    except (OSError, ValueError):
        return False
    entries = [start + offset for offset in range(0, _size(start), _POINTER_BYTES)
               if ctypes.c_uint64.from_address(start + offset).value == theirs]
    return len(entries) == 1 and _write(entries[0], ours)


def _address(library, name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(library, name))


def _size(address: int) -> int:
    """Bytes of the symbol that begins there; 0 if none does."""
    info, symbol = _Info(), ctypes.POINTER(_Symbol)()
    known = ctypes.CDLL(None).dladdr1(ctypes.c_void_p(address), ctypes.byref(info), ctypes.byref(symbol),
                                      _RTLD_DL_SYMENT)
    return symbol.contents.size if known and symbol and info.address == address else 0


def _write(address: int, value: int) -> bool:
    """Writes a pointer into memory that may be for reading only, and leaves that as it was."""
    page = os.sysconf("SC_PAGESIZE")
    first = address // page * page
    is_writable = _is_writable(address)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if not is_writable and protect(first, page, _READ | _WRITE) != 0:
        return False
    ctypes.c_uint64.from_address(address).value = value
    return is_writable or protect(first, page, _READ) == 0


def _is_writable(address: int) -> bool:
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            bounds, rights = line.split()[:2]
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if start <= address < end:
                return "w" in rights
    return False
