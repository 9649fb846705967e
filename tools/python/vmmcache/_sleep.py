"""region(), sleep(), wake(): the memory of a program without its contents on the device.

The library puts pools to sleep. This module chooses which: those of tags, or all of the process. It waits for the
devices first, and takes back what it has done if one of them fails.
"""
from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import contextmanager

from . import _cupy, _device, _install, _layout, _library
from ._errors import VmmError
from ._guard import Guard

_PHASES = ("awake", "sleeping", "asleep", "waking", "offered")
_AWAKE, _OFFERED = "awake", "offered"
_guard = Guard()
_is_moving = False


@contextmanager
def region(tag: str = "default", keep: bool = True, device=None):
    """Gives a tag to what the calling thread allocates on a device while the `with` statement runs.

    sleep(tag) and wake(tag) then apply to it. keep: whether a sleep saves the contents, unless it says otherwise.
    device: the current one, if it is not given. Regions nest; the innermost counts. Other threads are not in the
    region, so neither is a backward pass. CUDA graphs whose capture begins in a region belong to its tag, and so do
    MemPools that are first used in it. Raises VmmError during a capture.
    """
    if not isinstance(tag, str):
        raise TypeError(f"a tag is a str, not {tag!r}")
    library, number = _library.load(), _device.index(device)
    if not _install.is_installed() and not _cupy.is_installed():
        raise VmmError("a region has no effect before vmmcache.install()")
    _device.demand_no_capture("a region cannot begin")
    status = library.vmm_torch_region_begin(number, _library.c_string("a tag", tag), int(not keep))
    _library.check(status, f"region({tag!r}) was not begun")
    try:
        yield
    finally:
        _library.check(library.vmm_torch_region_end(number), "the region was not ended")


@contextmanager
def _alone():
    """One sleep or wake at a time. A signal handler may interrupt the thread that holds the lock."""
    global _is_moving
    with _guard.lock:
        if _is_moving:
            raise VmmError("a signal handler or callback cannot call sleep() or wake() within one of them")
        _is_moving = True
        try:
            yield
        finally:
            _is_moving = False


def sleep(tags=None, keep=None, on_claim=False) -> int:
    """Takes the physical memory from the tensors of tags, or of the whole process, and returns how many bytes.

    tags: a tag, a list of tags, or None: all memory that PyTorch has from the library, on all devices. In a list, None
    stands for memory without a tag. Tensors keep their addresses and must not be used before wake().

    keep: True: save the contents in host memory; False: discard them; a tag or a list of tags: save theirs and discard
    those of other tags; None: as region() says. Contents without a tag are always saved. A tag that is not known is an
    error, not a reason to discard.

    The call waits for the work of all devices, and releases idle memory too; the program must not submit work until
    wake().

    on_claim: True: the memory is only offered: it sleeps when another process needs it (install(neighbours=True)), or
    never. The call then waits for nothing and returns 0. Until wake(), which costs microseconds if no process came, the
    same holds as of memory that sleeps.

    Memory that sleeps already stays as it is. Raises VmmError if the host has too little for the contents (all memory
    is then awake again, if the device still has room for it), during a capture, or with VMM_DEBUG.
    """
    pools = _chosen(tags)
    if keep is not None and not isinstance(keep, bool):
        _chosen(keep)
    _device.demand_no_capture("memory cannot sleep")
    with _alone():
        awake = [pool for pool in pools if pool.phase() in (_AWAKE, _OFFERED)]
        before = _reserved()
        if not on_claim:
            _synchronize()
        done: list = []
        try:
            for discards, device, some in _groups(awake, keep):
                done += some
                _move("vmm_pool_sleep", some, f"memory of device {device} cannot sleep", discards, on_claim)
            if not on_claim:
                _library.load().vmm_torch_reset()  # what is idle goes, too
        except BaseException:
            _restore(done)
            raise
        return 0 if on_claim else max(0, before - _reserved())


def wake(tags=None) -> int:
    """Gives the tensors of tags, or all, physical memory and saved contents again, and returns how many bytes.

    tags: as for sleep(); a list is woken in its order. Raises torch.OutOfMemoryError, or VmmError without PyTorch, if
    the device has too little memory: on each device all of it wakes or nothing, and the call can be repeated.
    """
    pools = _chosen(tags)
    with _alone():
        before = _reserved()
        asleep = [pool for pool in pools if pool.phase() != _AWAKE]
        for device in sorted({pool.device for pool in asleep}):
            some = [pool for pool in asleep if pool.device == device]
            _move("vmm_pool_wake", some, f"memory of device {device} cannot wake")
        _pools()  # which ends graphs that were destroyed while they slept
        return max(0, _reserved() - before)


def sleep_state() -> dict:
    """{tag: {'asleep', 'reserved_bytes', 'asleep_bytes', 'backup_bytes'}} of all devices. The tag None stands for
    memory without a tag. 'asleep': True, False, or None if only a part of it sleeps; False of what is only offered.
    asleep_bytes: what a wake needs; backup_bytes: host memory for saved contents, which stays for the next sleep until
    backup_drop()."""
    state: dict = {}
    for pool in _pools():
        one = state.setdefault(pool.tag, {"asleep": [], "reserved_bytes": 0, "asleep_bytes": 0, "backup_bytes": 0})
        stats = pool.stats()
        one["asleep"].append(pool.phase() not in (_AWAKE, _OFFERED))
        one["reserved_bytes"] += stats.reserved_bytes.current
        one["asleep_bytes"] += stats.asleep_bytes
        one["backup_bytes"] += stats.backup_bytes
    for one in state.values():
        slept = set(one["asleep"])
        one["asleep"] = slept.pop() if len(slept) == 1 else None
    return state


def backup_drop(tags=None) -> None:
    """Gives back the host memory that is kept for the next sleep of tags, or of all memory that is awake."""
    for pool in _chosen(tags):
        if pool.phase() == _AWAKE:
            _library.check(_library.load().vmm_backup_drop(pool.handle), "the backup was not dropped")


def backup_address(address: int):
    """Where the saved contents of a sleeping block lie in host memory; None if it is awake or they were discarded."""
    library = _library.load()
    host = ctypes.c_void_p()
    for pool in _pools():
        if library.vmm_backup_find(pool.handle, address, ctypes.byref(host)) == _layout.STATUS_OK:
            return host.value
    return None


def live_bytes(tags) -> int:
    """Bytes of the live blocks of tags, whether they sleep or not."""
    return sum(pool.stats().allocated_bytes.current for pool in _chosen(known(tags)))


def known(tags=None) -> list:
    """Those of the tags that have memory, or all: the first one first."""
    found = list(dict.fromkeys(pool.tag for pool in reversed(_pools()) if pool.tag is not None))
    return found if tags is None else [tag for tag in _names(tags) if tag is None or tag in found]


# ---- Pools


class _Pool:
    def __init__(self, raw):
        self.handle, self.device, self.discards = raw.pool, raw.device, bool(raw.discards)
        self.tag = raw.tag.decode(errors="replace") or None

    def phase(self) -> str:
        """Of a pool that was destroyed meanwhile: awake."""
        phase = ctypes.c_int()
        status = _library.load().vmm_pool_state(self.handle, ctypes.byref(phase))
        return _PHASES[phase.value] if status == _layout.STATUS_OK else _AWAKE

    def stats(self):
        stats = _layout.Stats()
        _library.load().vmm_pool_stats_get(self.handle, ctypes.byref(stats))
        return stats


def _pools() -> list:
    """The pools of all devices that were opened."""
    library = _library.load()
    found = []
    for device in range(_device.MOST_DEVICES):
        if library.vmm_torch_cache(device) is None:
            continue
        room, count = 0, ctypes.c_size_t(1)
        while count.value > room:
            room = count.value + 8  # other threads may add some meanwhile
            raw = (_layout.TorchPool * room)()
            _library.check(library.vmm_torch_pools_list(device, raw, room, ctypes.byref(count)), "no list of pools")
        found += [_Pool(one) for one in raw[:count.value]]
    return found


def _chosen(tags) -> list:
    """The pools of these tags, in their order. A tag that no region() had is an error."""
    pools = _pools()
    if tags is None:
        return pools
    names = _names(tags)
    unknown = [name for name in names if name not in {None, *(pool.tag for pool in pools)}]
    if unknown:
        raise VmmError(f"nothing was allocated in a region({unknown[0]!r})")
    return [pool for name in names for pool in pools if pool.tag == name]


def _names(tags) -> list:
    """Each tag once."""
    names = list(tags) if isinstance(tags, Iterable) and not isinstance(tags, str) else [tags]
    for name in names:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"a tag is a str, not {name!r}")
    return list(dict.fromkeys(names))


def _discards(pool, keep) -> bool:
    if pool.tag is None or keep is True:
        return False
    if keep is None:
        return pool.discards
    return keep is False or pool.tag not in _names(keep)


def _groups(pools, keep) -> list:
    """(whether contents are discarded, device, pools) of one call each. What is saved sleeps first: the host may have
    too little memory for it, and what was discarded could not be taken back."""
    keys = sorted({(_discards(pool, keep), pool.device) for pool in pools})
    return [(discards, device, [pool for pool in pools
                                if pool.device == device and _discards(pool, keep) == discards])
            for discards, device in keys]


def _move(function: str, pools: list, what: str, discards: bool = False, on_claim: bool = False) -> None:
    library = _library.load()
    options = _layout.SleepOptions(on_sleep=_layout.ON_SLEEP_DISCARD if discards else _layout.ON_SLEEP_KEEP,
                                   unmapping=_library.address(library.vmm_torch_unmapping),
                                   mapped=_library.address(library.vmm_torch_mapped), on_claim=int(on_claim))
    handles = (ctypes.c_void_p * len(pools))(*[pool.handle for pool in pools])
    status = getattr(library, function)(handles, len(pools), ctypes.byref(options), None)
    if status == _layout.STATUS_DEVICE_OOM:
        raise _out_of_memory()(f"vmmcache: {what}: {_library.last_error()}")
    _library.check(status, what)


def _out_of_memory():
    torch = _device.torch_in_use()
    return getattr(torch, "OutOfMemoryError", VmmError)


def _restore(pools: list) -> None:
    """Wakes what a sleep that failed has put to sleep. What fails here must not hide why the sleep failed."""
    for pool in pools:
        if pool.phase() != _AWAKE:
            try:
                _move("vmm_pool_wake", [pool], "")
            except (VmmError, _out_of_memory()):
                pass


def _synchronize() -> None:
    for device in sorted({pool.device for pool in _pools()}):
        _device.synchronize(device)


def _reserved() -> int:
    return sum(pool.stats().reserved_bytes.current for pool in _pools())
