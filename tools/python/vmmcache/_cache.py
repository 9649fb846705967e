"""Cache and Block: the library from a script, without PyTorch.

    with vmmcache.Cache(limit='8GiB') as cache:
        block = cache.alloc(1 << 20)
        array = cupy.asarray(block)          # or torch.from_dlpack(block), numba.cuda.as_cuda_array(block)

Such a cache is its own: install() and install_cupy() use others. A block is freed when no reference to it, or to what
was made of it, is left.
"""
from __future__ import annotations

import ctypes

from . import _config, _dlpack, _layout, _library, _sizes
from ._errors import VmmError

_PER_THREAD = 2  # the handle of the thread's own default stream
_DRIVERS = {None: 0, "cuda": _layout.DRIVER_CUDA, "host": _layout.DRIVER_HOST, "sim": _layout.DRIVER_SIM}


def handle(stream) -> int:
    """The number of a stream: of CuPy, PyTorch or Numba, a number, or None."""
    if stream is None:
        return 0
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
            stream = getattr(stream, "value", stream)
    return int(stream or 0)


class Cache:
    """A cache on one device.

    driver: 'cuda', 'host' or 'sim'; None: VMM_DRIVER, else CUDA. zero: blocks contain zeros. Other arguments are those
    of install(). Raises VmmError, ValueError or TypeError.
    """

    def __init__(self, device: int = 0, driver=None, zero=None, **settings):
        self._library = _library.load()
        self._pointer = None
        if driver not in _DRIVERS:
            raise ValueError(f"driver={driver!r} is not one of 'cuda', 'host' and 'sim'")
        config, share = _config.translated(**settings)
        config.device, config.driver = device, _DRIVERS[driver]
        config.zero = {None: 0, True: _layout.ON, False: _layout.OFF}[zero]
        found = ctypes.c_void_p()
        _library.check(self._library.vmm_create(ctypes.byref(config), ctypes.byref(found)), "no cache was made")
        self._pointer, self._config, self.device = found.value, config, device
        self._driver = _library.driver_of(config)
        if share:
            self.set_limit(share)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_pointer", None):
            self.close()

    def close(self) -> None:
        """Waits for the device and destroys the cache with all of its blocks."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            _library.check(self._library.vmm_destroy(pointer), "the cache was destroyed")

    def _opened(self) -> int:
        if not self._pointer:
            raise VmmError("the cache is closed")
        return self._pointer

    def alloc(self, nbytes: int, stream=None) -> Block:
        """A block for use on a stream. Raises MemoryError if memory runs out."""
        address = ctypes.c_void_p()
        number = handle(stream)
        status = self._library.vmm_alloc(self._opened(), nbytes, number, ctypes.byref(address))
        if status in _layout.NO_MEMORY:
            raise MemoryError(_library.last_error())
        _library.check(status, "no block was allocated")
        return Block(self, address.value, nbytes, number)

    def stats(self) -> dict:
        """All statistics, as numbers, and as {'current', 'peak', 'allocated', 'freed'} where there are these."""
        found = _layout.Stats(struct_size=ctypes.sizeof(_layout.Stats))
        _library.check(self._library.vmm_stats_get(self._opened(), ctypes.byref(found)), "there are no statistics")
        result = {name: {part: getattr(getattr(found, name), part) for part, _ in _layout.Figure._fields_}
                  for name in _layout.FIGURES}
        result.update((name, getattr(found, name)) for name in _layout.NUMBERS)
        return result

    def trim(self, keep: int = 0) -> int:
        """Releases idle memory until at most so many bytes stay; returns how many were released."""
        released = ctypes.c_size_t()
        _library.check(self._library.vmm_trim(self._opened(), keep, ctypes.byref(released)), "the trim failed")
        return released.value

    def wait(self) -> None:
        """Waits for the work of all streams that the cache knows."""
        _library.check(self._library.vmm_wait(self._opened()), "the wait failed")

    def stream_end(self, stream) -> None:
        """Call it before a stream is destroyed."""
        _library.check(self._library.vmm_stream_end(self._opened(), handle(stream)), "the stream is not ended")

    def set_limit(self, limit) -> None:
        """The most physical memory: bytes, '8GiB', a share of the device such as 0.8, or None."""
        bytes_, share = _sizes.parse(limit)
        if share is not None:
            bytes_ = max(1, int(share * self.memory_info()[1]))
        _library.check(self._library.vmm_limit_set(self._opened(), bytes_), "the limit was not changed")

    def memory_info(self) -> tuple:
        """(free, total) bytes of the device."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        _library.check(self._library.vmm_device_memory(self._opened(), ctypes.byref(free), ctypes.byref(total)),
                       "the driver does not report the device's memory")
        return free.value, total.value


class Block:
    """Bytes of a cache. Other packages take it as an array of bytes, without a copy."""

    def __init__(self, cache: Cache, address: int, nbytes: int, stream: int):
        self.cache, self.address, self.nbytes, self.stream = cache, address, nbytes, stream

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def __del__(self):
        if getattr(self, "address", None):
            self.free()

    def __len__(self):
        return self.nbytes

    def free(self) -> None:
        """Frees the block in the order of its stream. Freeing it again does nothing."""
        address, self.address = self.address, None
        if address and self.cache._pointer:
            _library.check(self.cache._library.vmm_free(self.cache._pointer, address), "the block was not freed")

    def record_stream(self, stream) -> None:
        """Declares that work on another stream uses the block."""
        _library.check(self.cache._library.vmm_record_stream(self.cache._opened(), self._live(), handle(stream)),
                       "the stream was not recorded")

    def _live(self) -> int:
        if not self.address or not self.cache._pointer:
            raise VmmError("the block is freed")
        return self.address

    @property
    def __cuda_array_interface__(self) -> dict:
        if self.cache._driver != _layout.DRIVER_CUDA:
            raise AttributeError("the block is not on a GPU")
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self._live(), False), "version": 3,
                "strides": None, "stream": self.stream or 1}

    def __dlpack_device__(self) -> tuple:
        if self.cache._driver == _layout.DRIVER_CUDA:
            return _dlpack.CUDA, self.cache.device
        return _dlpack.CPU, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule of the bytes, for use on a stream of the consumer."""
        del max_version
        if self.cache._driver not in (_layout.DRIVER_CUDA, _layout.DRIVER_HOST):
            raise BufferError("the block has no memory")
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the block can only be shared where it is")
        if stream == _PER_THREAD:
            raise BufferError("the per-thread default stream is not supported")
        address = self._live()
        user = self.stream if stream == -1 else (stream or 0)
        if user not in (self.stream, self.stream or 1):
            self.record_stream(user)
            self.cache.wait()
        return _dlpack.capsule(self, address, self.nbytes, self.__dlpack_device__())
