"""The functions of torch._C that matter here. Those that PyTorch refuses to an allocator that was
plugged in raise, as they do there."""
import ctypes

current = None  # the allocator in use
is_initialized = False
capturing = None  # the id of the pool
synchronized = 0
streams = {0: 0}


def _hook(result, *arguments):
    """A setter that makes a function of an address, as pybind11 makes a std::function."""
    return lambda address: ctypes.CFUNCTYPE(result, *arguments)(address)


_pointer, _size, _int, _u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64

_SETTERS = {
    "set_init_fn": _hook(None, _int),
    "set_reset_fn": _hook(None),
    "set_memory_fraction_fn": _hook(None, ctypes.c_double, _int),
    "set_base_alloc_fn": _hook(_pointer, _pointer, ctypes.POINTER(_size)),
    "set_record_stream_fn": _hook(None, _pointer, _pointer),
    "set_begin_allocate_to_pool": _hook(None, _int, _u64, _u64, _pointer),
    "set_end_allocate_to_pool_fn": _hook(None, _int, _u64, _u64),
    "set_release_pool": _hook(None, _int, _u64, _u64),
}


class _CUDAPluggableAllocator:
    missing = ()  # setters that this version does not have

    def __init__(self, alloc, free):
        self.alloc = _hook(_pointer, _size, _int, _pointer)(alloc)
        self.free = _hook(None, _pointer, _size, _int, _pointer)(free)
        self.hooks = {}
        self.blocks = {}

    def __getattr__(self, name):
        if name not in _SETTERS or name in self.missing:
            raise AttributeError(name)
        return lambda address: self.hooks.__setitem__(name, _SETTERS[name](address))


def _cuda_customAllocator(alloc, free):
    return _CUDAPluggableAllocator(alloc, free)


def _cuda_changeCurrentAllocator(allocator):
    global current
    if is_initialized:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator


def lazy_init():
    global is_initialized
    if not is_initialized:
        is_initialized = True
        current.hooks["set_init_fn"](1)


def _cuda_cudaCachingAllocator_raw_alloc(size, stream):
    lazy_init()
    address = current.alloc(size, 0, stream)
    current.blocks[address] = (size, stream)
    return address


def _cuda_cudaCachingAllocator_raw_delete(address):
    size, stream = current.blocks.pop(address)
    current.free(address, size, 0, stream)


_NO_FILTER = ctypes.create_string_buffer(64)  # an empty std::function


def pool_begin(pool):
    global capturing
    current.hooks["set_begin_allocate_to_pool"](0, *pool, ctypes.addressof(_NO_FILTER))
    capturing = pool


def pool_end(pool):
    global capturing
    capturing = None
    current.hooks["set_end_allocate_to_pool_fn"](0, *pool)


def pool_release(pool):
    current.hooks["set_release_pool"](0, *pool)


def _cuda_emptyCache():
    current.hooks["set_reset_fn"]()


def _cuda_setMemoryFraction(fraction, device):
    current.hooks["set_memory_fraction_fn"](fraction, device)


def _cuda_getAllocatorBackend():
    return "pluggable"


def _refusing(name):
    def refuse(*_, **__):
        raise RuntimeError(f"pluggable does not yet support {name}")
    return refuse


for _name in ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_resetAccumulatedMemoryStats",
              "_cuda_memorySnapshot", "_cuda_record_memory_history", "_cuda_getMemoryFraction",
              "_cuda_record_memory_history_legacy", "_cuda_attach_out_of_memory_observer",
              "_cuda_isHistoryEnabled", "_cuda_checkPoolLiveAllocations", "_cuda_getCheckpointState",
              "_cuda_setCheckpointPoolState"):
    globals()[_name] = _refusing(_name)


# torch.accelerator asks PyTorch's own allocator, which is never used here.


def _accelerator_isAllocatorInitialized():
    return False


def _accelerator_emptyCache():
    pass


def _accelerator_getDeviceStats(device):
    return {}


def _accelerator_resetPeakStats(device):
    pass


def _accelerator_resetAccumulatedStats(device):
    pass


def _accelerator_getMemoryInfo(device):
    return 1 << 30, 2 << 30
