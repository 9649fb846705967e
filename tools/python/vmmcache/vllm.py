"""vmmcache in vLLM: a plug-in (entry point vllm.general_plugins), and sleep mode over region(), sleep() and wake().

vLLM loads register() in each of its processes. It does something only if VLLM_PLUGINS names vmmcache, or with
VMMCACHE_AUTOINSTALL. vLLM's own allocator for sleep mode needs a MemPool with a foreign allocator; CuMemAllocator here
has its interface. Where vLLM has a registry of sleep-mode backends, the backend "vmmcache" also takes memory without a
tag, such as that of CUDA graphs.
"""
from __future__ import annotations

import gc
import importlib
import os
import sys

from . import _auto, _sleep

NAME = "vmmcache"
_ALLOCATOR = "vllm.device_allocator.cumem"
_BACKENDS = "vllm.device_allocator.sleep_mode_backend"
_WEIGHTS = "weights"
_RELEASE = "VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY"


class CuMemAllocator:
    """vLLM's allocator for sleep mode, as its workers call it."""

    instance = None
    default_tag = "default"

    @staticmethod
    def get_instance():
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
        return CuMemAllocator.instance

    def __init__(self):
        self._tags: dict = {}

    def use_memory_pool(self, tag=None):
        """A context: what the thread allocates has the tag."""
        tag = self.default_tag if tag is None else tag
        self._tags[tag] = True
        return _sleep.region(tag)

    def sleep(self, offload_tags=None) -> None:
        """Takes the memory of all its tags, and saves the contents of these. None: of the default tag."""
        gc.collect()
        saved = _tuple(self.default_tag if offload_tags is None else offload_tags)
        _sleep.sleep(self._known(), keep=_sleep.known(saved))

    def discard(self, tags) -> None:
        """Takes the memory of these tags, without saving."""
        _sleep.sleep(self._known(_tuple(tags)), keep=False)

    def wake_up(self, tags=None) -> None:
        """Gives the memory of these tags back, or of all. On failure nothing has changed."""
        _wake(self._known(None if tags is None else _tuple(tags)))

    def get_current_usage(self) -> int:
        """Bytes of the live tensors of its tags."""
        return _sleep.live_bytes(list(self._tags))

    def _known(self, tags=None) -> list:
        return _sleep.known([tag for tag in (self._tags if tags is None else tags) if tag in self._tags])


def _wake(tags) -> None:
    """Wakes tags, or all. vLLM asks with a variable that the host memory of saved contents goes back then."""
    _sleep.wake(tags)
    if os.environ.get(_RELEASE, "0") not in _auto.OFF:
        _sleep.backup_drop(tags)


def _tuple(tags) -> tuple:
    return (tags,) if isinstance(tags, str) else tuple(tags)


def _backend(base):
    """The class of the sleep-mode backend; its base class is vLLM's."""
    class SleepModeBackend(base):
        """Level 1 saves the weights, level 2 does not. Other tags are discarded; memory without a tag is always
        saved."""

        def suspend(self, level: int = 1) -> None:
            gc.collect()
            _sleep.sleep(keep=_sleep.known((_WEIGHTS,)) if level == 1 else ())
            self._state = "SUSPENDED"

        def resume(self, tags=None) -> None:
            self._state = "RESUMING"
            _wake(None if tags is None else [None, *_sleep.known(_tuple(tags))])
            self._state = "RUNNING"

        def discard(self, tags) -> None:
            _sleep.sleep(_sleep.known(_tuple(tags)), keep=False)
            self._state = "SUSPENDED"

        @classmethod
        def preserves_communicators(cls) -> bool:
            return True

        @classmethod
        def preserves_compiled_artifacts(cls) -> bool:
            return True

        @classmethod
        def preserves_graphs_with_communicators(cls) -> bool:
            return True

    return SleepModeBackend


def __getattr__(name: str):
    """vLLM imports the backend by this name. Its base class exists only with vLLM."""
    if name != "SleepModeBackend":
        raise AttributeError(name)
    found = globals()[name] = _backend(importlib.import_module(_BACKENDS).SleepModeBackend)
    return found


def register() -> None:
    """What vLLM calls when it loads plug-ins. May be called again."""
    if not _is_wanted():
        return
    try:
        _auto.install()
        importlib.import_module(_ALLOCATOR).CuMemAllocator = CuMemAllocator
        _register_backend()
    except Exception as error:
        if _auto.is_strict():
            raise
        print(f"vmmcache: vLLM runs without it: {' '.join(str(error).split())}", file=sys.stderr)


def _is_wanted() -> bool:
    named = [name.strip() for name in os.environ.get("VLLM_PLUGINS", "").split(",")]
    return NAME in named or os.environ.get(_auto.AUTOINSTALL, "") not in _auto.OFF


def _register_backend() -> None:
    try:
        factory = importlib.import_module(_BACKENDS).SleepModeBackendFactory
    except ImportError:
        return  # an older vLLM
    try:
        factory.register_backend(NAME, __name__, "SleepModeBackend")
    except ValueError:
        pass  # it is registered
