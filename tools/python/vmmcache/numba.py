"""Numba's memory from libvmmcache: an external memory management plug-in.

    NUMBA_CUDA_MEMORY_MANAGER=vmmcache.numba python program.py

or, before the first use of CUDA, numba.cuda.set_memory_manager(vmmcache.numba.MemoryManager). PyTorch's memory, CuPy's
and Numba's then come from one cache on each device.

Numba does not say on which streams an array is used. So its blocks belong to a stream on which no work runs: memory of
other streams serves them when its work has completed. And it expects that memory is reused after all work of the
device, as with cuMemFree(). So blocks that Numba frees are kept, and freed together after one wait for the device, when
there are many of them or a request would fail.
"""
from __future__ import annotations

import contextlib
import threading

from numba import cuda
from numba.cuda.cudadrv import driver as _driver
from numba.cuda.cudadrv.driver import MemoryInfo, MemoryPointer

from . import _cache, _control, _library

_MOST_BLOCKS = 64  # that wait for their free
_SHARE = 16  # so does at most one of so many parts of the device's memory


def _pointer(address: int):
    """An address as the versions of Numba want it."""
    if getattr(_driver, "USE_NV_BINDING", True):
        return _driver.binding.CUdeviceptr(address)
    return _driver.drvapi.cu_device_ptr(address)


class MemoryManager(cuda.HostOnlyCUDAMemoryManager):
    """Device memory of one context; host memory stays Numba's."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._lock = threading.RLock()  # a finalizer may run within a call of the same thread
        self._freed = []  # (address, bytes)
        self._most_bytes = 0
        self._idle = None  # the stream
        self._is_deferred = 0

    def initialize(self):
        if self._idle is not None:
            return
        self._library = _library.load()
        self._idle = self.context.create_stream()
        self._most_bytes = self.get_memory_info().total // _SHARE

    def _device(self) -> int:
        return self.context.device.id

    def _flush(self) -> bool:
        """Frees what waits; whether there was anything."""
        with self._lock:
            freed, self._freed = self._freed, []
        if freed:
            self.context.synchronize()
        for address, size in freed:
            self._library.vmm_torch_free(address, size, self._device(), None)
        return bool(freed)

    def _should_flush(self) -> bool:
        with self._lock:
            return not self._is_deferred and (len(self._freed) >= _MOST_BLOCKS or
                                              sum(size for _, size in self._freed) >= self._most_bytes)

    def _alloc(self, size: int):
        address = self._library.vmm_torch_try_alloc(size, self._device(), _cache.handle(self._idle))
        if address is not None:
            self._idle.synchronize()  # with VMM_REUSE=stream_wait it may wait for another stream
        return address

    def memalloc(self, size):
        if self._should_flush():
            self._flush()
        address = self._alloc(size)
        if address is None and not self._is_deferred and self._flush():
            address = self._alloc(size)
        if address is None:
            raise MemoryError(_library.last_error())
        freed, lock = self._freed_list, self._lock

        def finalize():
            with lock:
                freed().append((address, size))

        return MemoryPointer(self.context, _pointer(address), size, finalizer=finalize)

    def _freed_list(self) -> list:
        return self._freed

    def get_memory_info(self):
        free, total = _control.mem_get_info(self._device())
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory):
        raise NotImplementedError("memory of libvmmcache cannot be sent to other processes by a handle of CUDA")

    def reset(self):
        super().reset()
        self._flush()

    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            self._is_deferred += 1
            try:
                yield
            finally:
                self._is_deferred -= 1

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = MemoryManager
