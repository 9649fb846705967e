"""Cache and Block: the library from a script, without PyTorch.

    with vmmcache.Cache(limit='8GiB') as cache:
        block = cache.alloc(1 << 20)
        array = cupy.asarray(block)          # or torch.from_dlpack(block), numba.cuda.as_cuda_array(block)

Such a cache is its own: install() and install_cupy() use others. A block is freed when no reference to it, or to what
was made of it, is left.
"""
from __future__ import annotations

import ctypes
import os

from . import _config, _control, _dlpack, _layout, _library, _sizes, _trace
from ._errors import VmmError

_PER_THREAD = 2  # the handle of the thread's own default stream
_MOST_ORDINAL = 0x7FFFFFFF
_DRIVERS = {None: 0, "cuda": _layout.DRIVER_CUDA, "host": _layout.DRIVER_HOST, "sim": _layout.DRIVER_SIM}


def handle(stream) -> int:
    """The number of a stream: of CuPy, PyTorch or Numba, a number, or None."""
    number = stream
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(number, name):
            number = getattr(number, name)
            number = getattr(number, "value", number)
    if number is None:
        return 0
    if not hasattr(number, "__int__"):
        raise TypeError(f"a stream must be one of CuPy, PyTorch or Numba, or a number, not {stream!r}")
    return _sizes.count("stream", int(number))


class _Held:
    """What the library made, and how it ends: with the last reference. So it lasts while a call of any thread, or a
    consumer of DLPack, uses it. A child that forked leaves what its parent made alone."""

    def __init__(self, address: int, end):
        self.address = self._as_parameter_ = address  # None: it has ended, in a cycle of garbage that has not yet
        self._end, self._process, self.errors = end, os.getpid(), None

    def __del__(self):
        address, self.address = self.address, None
        if self._process != os.getpid():
            return
        try:
            self._end(address)
        except VmmError as error:
            if self.errors is None:
                raise
            self.errors.append(error)


def _let_go(owner, name: str) -> None:
    """Drops a reference to something that is held, and raises the error of its end, if it ends now."""
    held = getattr(owner, name)
    setattr(owner, name, None)
    if held is not None:
        errors = held.errors = []
        del held
        if errors:
            raise errors[0]


def _destroy(pointer: int) -> None:
    _library.check(_library.load().vmm_destroy(pointer), "the cache was destroyed")


class Cache:
    """A cache on one device.

    driver: 'cuda', 'host' or 'sim'; None: VMM_DRIVER, else CUDA. zero: blocks contain zeros. Other arguments are those
    of install(). Raises VmmError, ValueError or TypeError.
    """

    def __init__(self, device: int = 0, driver=None, zero=None, **settings):
        self._library = _library.load()
        self._held = None
        if driver not in _DRIVERS:
            raise ValueError(f"driver={driver!r} is not one of 'cuda', 'host' and 'sim'")
        config, share = _config.translated(**settings)
        config.device, config.driver = _config.number("device", device, _MOST_ORDINAL), _DRIVERS[driver]
        config.zero = _config.switch("zero", zero)
        found = ctypes.c_void_p()
        _library.check(self._library.vmm_create(ctypes.byref(config), ctypes.byref(found)), "no cache was made")
        self._held = _Held(found.value, _destroy)
        self._config, self.device = config, config.device
        self._driver = _library.driver_of(config)
        if share:
            self.set_limit(share)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Waits for the device and destroys the cache with all of its blocks. A call of another thread ends first, and
        so does the use of a block by a consumer of DLPack."""
        _let_go(self, "_held")

    def _opened(self) -> _Held:
        held = self._held
        if not (held and held.address):
            raise VmmError("the cache is closed")
        return held

    def alloc(self, nbytes: int, stream=None) -> Block:
        """A block for use on a stream. Raises MemoryError if memory runs out."""
        address = ctypes.c_void_p()
        number, nbytes = handle(stream), _sizes.count("nbytes", nbytes)
        status = self._library.vmm_alloc(self._opened(), nbytes, number, ctypes.byref(address))
        if status in _layout.NO_MEMORY:
            raise MemoryError(_library.last_error())
        _library.check(status, "no block was allocated")
        return Block(self, address.value, nbytes, number)

    def _free(self, address: int) -> None:
        """A closed cache has no blocks."""
        held = self._held
        if held and held.address:
            _library.check(self._library.vmm_free(held, address), "the block was not freed")

    def stats(self) -> dict:
        """All statistics, as numbers, and as {'current', 'peak', 'allocated', 'freed'} where there are these."""
        return _layout.value_of(_library.stats(self._opened()))

    def trace(self, path, stacks: bool = False):
        """Records the cache to a file while the `with` statement runs: `with cache.trace('run.trace'):`. A cache that
        is closed meanwhile lasts until then.

        stacks: with the native stack of each allocation. Raises VmmError if the file cannot be written; the statement
        inside runs to its end first if that shows only later.
        """
        return _trace.record(self._opened(), path, stacks)

    def trace_note(self, text: str) -> None:
        """Marks this moment in the recording, such as a step. Without a recording it does nothing."""
        _trace.note(self._opened(), text)

    def trim(self, keep: int = 0) -> int:
        """Releases idle memory until at most so many bytes stay; returns how many were released."""
        released = ctypes.c_size_t()
        _library.check(self._library.vmm_trim(self._opened(), _sizes.count("keep", keep), ctypes.byref(released)),
                       "the trim failed")
        return released.value

    def wait(self) -> None:
        """Waits for the work of all streams that the cache knows."""
        _library.check(self._library.vmm_wait(self._opened()), "the wait failed")

    def stream_end(self, stream) -> None:
        """Call it before a stream is destroyed."""
        _library.check(self._library.vmm_stream_end(self._opened(), handle(stream)), "the stream is not ended")

    def set_limit(self, limit) -> None:
        """The most physical memory: bytes, '8GiB', a share of the device such as 0.8, or None."""
        _control.limit_set(self._opened(), limit, "the limit was not changed")

    def memory_info(self) -> tuple:
        """(free, total) bytes of the device."""
        return _control.memory(self._opened())


class Block:
    """Bytes of a cache. Other packages take it as an array of bytes, without a copy."""

    def __init__(self, cache: Cache, address: int, nbytes: int, stream: int):
        self.cache, self.nbytes, self.stream = cache, nbytes, stream
        self._held = _Held(address, cache._free)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def __len__(self):
        return self.nbytes

    @property
    def address(self):
        """None: it is freed."""
        held = self._held
        return held and held.address

    def free(self) -> None:
        """Frees the block in the order of its stream, once no consumer of DLPack uses it. Freeing it again does
        nothing."""
        _let_go(self, "_held")

    def record_stream(self, stream) -> None:
        """Declares that work on another stream uses the block."""
        _library.check(self.cache._library.vmm_record_stream(self.cache._opened(), self._live(), handle(stream)),
                       "the stream was not recorded")

    def _live(self) -> _Held:
        held = self._held
        if not (held and held.address and self.cache._held):
            raise VmmError("the block is freed")
        return held

    @property
    def __cuda_array_interface__(self) -> dict:
        if self.cache._driver != _layout.DRIVER_CUDA:
            raise AttributeError("the block is not on a GPU")
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self._live().address, False), "version": 3,
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
        held = self._live(), self.cache._opened()
        user = self.stream if stream == -1 else handle(stream)
        if user not in (self.stream, self.stream or 1):
            self.record_stream(user)
            self.cache.wait()
        return _dlpack.capsule(held, held[0].address, self.nbytes, self.__dlpack_device__())
