"""The allocators that are compared: how a process is given one, and the figures it answers with.

May be imported by: scripts in tools/torchbench. Imports torch only where a figure is asked for, so that an
allocator is installed before anything else happens.
"""
import os

from places import HOME

NATIVE, EXPANDABLE, OURS = "native", "expandable", "vmmcache"
ALLOCATORS = (NATIVE, EXPANDABLE, OURS)
CHOOSING = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
            "VMM_NO_CACHING")


def chosen(names):
    """The names of a list with commas; ends the program at one that is none."""
    found = names.split(",")
    for name in found:
        if name not in ALLOCATORS:
            raise SystemExit("error: %r is no allocator; there are %s" % (name, ", ".join(ALLOCATORS)))
    if OURS in found and not os.path.exists(os.environ.get("VMMCACHE_LIBRARY", "")):
        raise SystemExit("error: VMMCACHE_LIBRARY has to name libvmmcache_torch.so")
    return found


def environment(name, **more):
    """The environment of a process that uses an allocator."""
    env = {key: value for key, value in os.environ.items() if key not in CHOOSING}
    if name == EXPANDABLE:
        env["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    if name == OURS:
        env["PYTHONPATH"] = os.pathsep.join(
            [os.path.join(HOME, "tools", "python")] + [env[key] for key in ("PYTHONPATH",) if key in env])
    env["PYTHONUNBUFFERED"] = "1"
    env.update(more)
    return env


def install(name):
    """To be called before torch sees the GPU."""
    if name == OURS:
        import vmmcache
        vmmcache.install(patch=True)


def verify(name):
    """Raises unless the process uses the allocator that it was given."""
    import torch
    backend = torch.cuda.memory.get_allocator_backend()
    if (backend != "native") != (name == OURS):
        raise RuntimeError("allocator %s was asked for, PyTorch uses %s" % (name, backend))
    if name == OURS:
        return
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    if bool(settings.get("expandable_segments")) != (name == EXPANDABLE):
        raise RuntimeError("allocator %s was asked for, PyTorch's settings are %s" % (name, settings))


class Meter:
    """What the allocator of this process says, and its limit: each allocator by its own functions."""

    PEAKS = ("requested", "allocated", "active", "reserved")

    def __init__(self, name):
        import torch
        self.name, self.torch = name, torch
        if name == OURS:
            import vmmcache
            self.source = vmmcache
        else:
            self.source = torch.cuda

    def peaks_reset(self):
        self.source.reset_peak_memory_stats()

    def stats(self):
        return {key: int(value) for key, value in self.source.memory_stats().items()}

    def peaks(self):
        """{figure: bytes}"""
        stats = self.stats()
        return {name: stats["%s_bytes.all.peak" % name] for name in self.PEAKS}

    def device_used(self):
        """What the driver says is taken, whoever took it."""
        free, total = self.torch.cuda.mem_get_info()
        return total - free

    def limit(self, size):
        if self.name == OURS:
            self.source.set_memory_limit(size)
            return
        total = self.torch.cuda.mem_get_info()[1]
        # PyTorch rounds the product down.
        self.torch.cuda.set_per_process_memory_fraction((size + 0.5) / total)

    def unlimit(self):
        if self.name == OURS:
            self.source.set_memory_limit(None)
        else:
            self.torch.cuda.set_per_process_memory_fraction(1.0)
