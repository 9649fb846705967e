"""The interface of the package torch_memory_saver, over region(), sleep() and wake().

    from vmmcache.memory_saver import torch_memory_saver

stand_in(), or VMMCACHE_MEMORY_SAVER=1 with VMMCACHE_AUTOINSTALL=1, gives this module to frameworks that import
torch_memory_saver. It needs no LD_PRELOAD. Differences: pausing what is paused does nothing, tags that nothing has are
accepted, and a pause that fails wakes what it can.
"""
from __future__ import annotations

import ctypes
import importlib
import os
import sys
from contextlib import contextmanager

from . import _auto, _sleep

_NAME = "torch_memory_saver"
_DISABLED = "torch_memory_saver.disable"  # the tag of what is never paused
_DEFAULT = "default"


class TorchMemorySaver:
    """What frameworks call. Its settings are accepted and have no effect."""

    hook_mode = None
    memory_margin_bytes = 0
    enabled = True

    def region(self, tag: str = _DEFAULT, enable_cpu_backup: bool = False):
        """A context: what the thread allocates can be paused; enable_cpu_backup: with its contents saved."""
        return _sleep.region(tag, keep=enable_cpu_backup)

    @contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag: str = _DEFAULT,
                   enable_cpu_backup: bool = False):
        """torch.cuda.graph(), so that the graph's memory can be paused. The first capture into a pool sets its tag."""
        torch = importlib.import_module("torch")
        with self.region(tag, enable_cpu_backup), torch.cuda.graph(
                cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            yield

    def disable(self, dispose_mem_pool_after_use: bool = True):
        """A context: what the thread allocates cannot be paused."""
        return _sleep.region(_DISABLED)

    def pause(self, tag=None) -> None:
        """Takes the memory of a tag, or of all tags."""
        _sleep.sleep(self._tags(tag))

    def resume(self, tag=None) -> None:
        """Gives the memory of a tag back, or of all tags, with contents that were saved."""
        _sleep.wake(self._tags(tag))

    def get_cpu_backup(self, x, zero_copy: bool = False):
        """The saved contents of a tensor that is paused, on the CPU; None if there are none. zero_copy: the saved bytes
        themselves, which resume() restores: valid until then."""
        if not x.is_cuda or not x.is_contiguous():
            raise ValueError("get_cpu_backup() needs a contiguous CUDA tensor")
        address = _sleep.backup_address(x.data_ptr()) if x.nbytes else None
        if address is None:
            return None
        torch = importlib.import_module("torch")
        saved = torch.frombuffer((ctypes.c_uint8 * x.nbytes).from_address(address), dtype=torch.uint8)
        saved = saved.view(x.dtype).view(x.shape)
        return saved if zero_copy else saved.clone()

    def _tags(self, tag) -> list:
        """With TMS_INIT_ENABLE=1 memory without a tag has the default tag."""
        tags = _sleep.known(None if tag is None else [tag])
        is_all = os.environ.get("TMS_INIT_ENABLE") == "1" and tag in (None, _DEFAULT)
        return [*([None] if is_all else []), *(tag for tag in tags if tag != _DISABLED)]


torch_memory_saver = TorchMemorySaver()


@contextmanager
def configure_subprocess():
    """A context: Python processes that are started in it have vmmcache and this module."""
    names = (_auto.AUTOINSTALL, _auto.MEMORY_SAVER)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: "1" for name in names if before[name] in (None, *_auto.OFF)})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def stand_in() -> None:
    """Lets `import torch_memory_saver` find this module, in place of the package if that is not imported yet."""
    sys.modules.setdefault(_NAME, sys.modules[__name__])
