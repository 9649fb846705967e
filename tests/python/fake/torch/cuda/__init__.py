"""torch.cuda, as far as vmmcache uses it."""
import torch


def is_initialized():
    return torch._C.is_initialized


def current_device():
    torch._C.lazy_init()
    return 0


def device_count():
    return 1


def synchronize(device=None):
    torch._C.synchronized += 1


def is_current_stream_capturing():
    return torch._C.capturing is not None


class CUDAGraph:
    """Holds the blocks of its capture only in the allocator."""
    count = 0

    def __init__(self):
        self._pool = None

    def capture_begin(self, pool=None):
        CUDAGraph.count += 1
        self._pool = pool or (0, CUDAGraph.count)
        torch._C.pool_begin(self._pool)

    def capture_end(self):
        torch._C.pool_end(self._pool)

    def __del__(self):
        if self._pool is not None:
            torch._C.pool_release(self._pool)


class graph:
    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self._graph, self._pool = cuda_graph, pool

    def __enter__(self):
        self._graph.capture_begin(self._pool)

    def __exit__(self, *_):
        self._graph.capture_end()


from .memory import *  # noqa: E402,F401,F403
from . import memory  # noqa: E402,F401
