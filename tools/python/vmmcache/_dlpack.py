"""DLPack: the capsules by which packages share arrays (https://dmlc.github.io/dlpack).

A capsule owns a structure that describes the bytes. Its consumer calls the structure's deleter when it needs them no
longer; if there is no consumer, the capsule's end calls it.
"""
from __future__ import annotations

import atexit
import ctypes

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


_shared: dict = {}  # by the address of the structure: (structure, shape, block)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address):
    _shared.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _end(capsule):
    """The name of a capsule that was consumed is another one."""
    if ctypes.pythonapi.PyCapsule_IsValid(ctypes.c_void_p(capsule), _NAME):
        _delete(ctypes.pythonapi.PyCapsule_GetPointer(ctypes.c_void_p(capsule), _NAME))


ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p


def capsule(block, address: int, nbytes: int, device: tuple):
    """A capsule of bytes; it keeps the block."""
    shape = (ctypes.c_int64 * 1)(nbytes)
    managed = Managed(deleter=ctypes.cast(_delete, ctypes.c_void_p).value)
    managed.tensor = _Tensor(data=address, device_type=device[0], device_id=device[1], ndim=1, code=_UNSIGNED,
                             bits=_BITS, lanes=1, shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)))
    _shared[ctypes.addressof(managed)] = managed, shape, block
    return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(managed), _NAME, ctypes.cast(_end, ctypes.c_void_p))


@atexit.register
def _part():
    """A consumer may outlive Python, and must not call it then: a structure without a deleter is never deleted."""
    for managed, _, _ in _shared.values():
        managed.deleter = None
