"""DLPack: the capsules by which packages share arrays (https://dmlc.github.io/dlpack).

A capsule owns a structure that describes the bytes. Its consumer calls the structure's deleter when it needs them no
longer; if there is no consumer, the capsule's end calls it. Both come at any time, also while an exception is on its
way, so they are functions of the library, which call _delete().
"""
from __future__ import annotations

import atexit
import ctypes

from . import _library

CPU, CUDA = 1, 2  # DLDeviceType
_UNSIGNED, _BITS = 1, 8  # DLDataType
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor"""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    """DLManagedTensor"""
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_shared: dict = {}  # by the address of the structure: (structure, shape, what holds the bytes)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address):
    _shared.pop(address, None)


ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def capsule(held, address: int, nbytes: int, device: tuple):
    """A capsule of bytes; it keeps what holds them."""
    library = _library.load()
    shape = (ctypes.c_int64 * 1)(nbytes)
    managed = Managed(context=_library.address(_delete), deleter=_library.address(library.vmm_torch_dlpack_delete))
    managed.tensor = _Tensor(data=address, device_type=device[0], device_id=device[1], ndim=1, code=_UNSIGNED,
                             bits=_BITS, lanes=1, shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)))
    _shared[ctypes.addressof(managed)] = managed, shape, held
    return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(managed), _NAME,
                                       _library.address(library.vmm_torch_dlpack_end))


@atexit.register
def _part():
    """A consumer may outlive Python, and must not call it then: a structure without a deleter is never deleted."""
    for managed, _, _ in _shared.values():
        managed.deleter = None
