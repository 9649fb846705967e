"""The allocators that are compared: how a process installs one, and how to read its statistics.

Imported by: scripts in tools/torchbench. Imports torch only in functions, so that a process can install an allocator
before anything else happens.
"""
import os

from places import HOME

NATIVE, EXPANDABLE, OURS, WAITING = "native", "expandable", "vmmcache", "vmmcache-wait"
ALLOCATORS = (NATIVE, EXPANDABLE, OURS, WAITING)
# Of vmmcache: the allocator class, or an error. The plug-in would be another measurement.
SETTINGS = {OURS: {"native": True}, WAITING: {"native": True, "reuse": "stream_wait"}}
CHOOSING = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
            "VMM_NO_CACHING")
installed = NATIVE  # in this process


def parse_names(names):
    """Splits a list at commas; ends the program if a name is unknown."""
    found = names.split(",")
    for name in found:
        if name not in ALLOCATORS:
            raise SystemExit("error: %r is not an allocator; use %s" % (name, ", ".join(ALLOCATORS)))
    if SETTINGS.keys() & set(found) and not os.path.exists(os.environ.get("VMMCACHE_LIBRARY", "")):
        raise SystemExit("error: set VMMCACHE_LIBRARY to the path of libvmmcache_torch.so")
    return found


def environment(name, has_package=False, **more):
    """The environment of a process that uses an allocator; has_package: it can import vmmcache in any case."""
    env = {key: value for key, value in os.environ.items() if key not in CHOOSING}
    if name == EXPANDABLE:
        env["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    if has_package or name in SETTINGS:
        env["PYTHONPATH"] = os.pathsep.join(
            [os.path.join(HOME, "tools", "python")] + [env[key] for key in ("PYTHONPATH",) if key in env])
    env["PYTHONUNBUFFERED"] = "1"
    env.update(more)
    return env


def install(name):
    """Installs the allocator. Call it before torch uses the GPU."""
    global installed
    installed = name
    if name in SETTINGS:
        import vmmcache
        vmmcache.install(**SETTINGS[name])


def verify(name):
    """Raises if the process does not use this allocator."""
    import torch
    backend = torch.cuda.memory.get_allocator_backend()
    if (backend != "native") != (name in SETTINGS):
        raise RuntimeError("allocator %s was requested, but PyTorch uses %s" % (name, backend))
    if name in SETTINGS:
        return
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    if bool(settings.get("expandable_segments")) != (name == EXPANDABLE):
        raise RuntimeError("allocator %s was requested, but PyTorch's settings are %s" % (name, settings))


class Meter:
    """Statistics and limit of this process's allocator, through its own functions."""

    PEAKS = ("requested", "allocated", "active", "reserved")

    def __init__(self, name):
        import torch
        self.name, self.torch = name, torch
        if name in SETTINGS:
            import vmmcache
            self.source = vmmcache
        else:
            self.source = torch.cuda

    def peaks_reset(self):
        self.source.reset_peak_memory_stats()

    def peaks(self):
        """{statistic: bytes}"""
        stats = self.source.memory_stats()
        return {name: int(stats["%s_bytes.all.peak" % name]) for name in self.PEAKS}

    def ticks(self):
        """Events that the clock of vmmcache has recorded; 0 for others."""
        if self.name not in SETTINGS:
            return 0
        from vmmcache import _figures
        return _figures.Figures(self.torch.cuda.current_device()).count("clock_ticks")

    def graph_bytes(self):
        """Bytes of captured graphs that hold no tensor: nothing else may use them, because each replay writes there."""
        return sum(segment["total_size"] - segment["active_size"] for segment in self.torch.cuda.memory_snapshot()
                   if tuple(segment["segment_pool_id"]) != (0, 0))

    def device_used(self):
        """Bytes in use on the device, by any process."""
        free, total = self.torch.cuda.mem_get_info()
        return total - free

    def limit(self, size):
        if self.name in SETTINGS:
            self.source.set_memory_limit(size)
            return
        total = self.torch.cuda.mem_get_info()[1]
        # PyTorch rounds the product down, so this adds half a byte.
        self.torch.cuda.set_per_process_memory_fraction((size + 0.5) / total)

    def unlimit(self):
        if self.name in SETTINGS:
            self.source.set_memory_limit(None)
        else:
            self.torch.cuda.set_per_process_memory_fraction(1.0)
