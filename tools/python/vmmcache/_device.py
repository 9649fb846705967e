"""Which device a caller means: None, an ordinal, 'cuda:1' or a torch.device."""
from __future__ import annotations

import operator
import sys

from ._errors import VmmError

MOST_DEVICES = 64  # the width of vmm_config.peer_devices

_cupy = None  # the module, once its allocator is ours


def cupy_is_installed(cupy) -> None:
    """Has current() ask CuPy where PyTorch is not in use."""
    global _cupy
    _cupy = cupy


def torch_in_use():
    """The module torch if CUDA is initialised in it, else None. Never imports it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def current() -> int:
    """PyTorch's current device, else CuPy's, else 0."""
    torch = torch_in_use()
    if torch is not None:
        return torch.cuda.current_device()
    return _cupy.cuda.runtime.getDevice() if _cupy is not None else 0


def index(device=None) -> int:
    """The ordinal of a device. Raises ValueError for one that cannot be there."""
    number, devices = _number(device), count()
    if not 0 <= number < devices:
        raise ValueError(f"there is no device {number}: devices are 0 to {devices - 1}")
    return number


def _number(device) -> int:
    if device is None:
        return current()
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind != "cuda" or (number and not number.isdecimal()):
            raise ValueError(f"'{device}' is not a CUDA device; an example is 'cuda:0'")
        return int(number) if number else current()
    if hasattr(device, "type"):
        if device.type != "cuda":
            raise ValueError(f"{device!r} is not a CUDA device")
        return current() if device.index is None else device.index
    return operator.index(device)


def count() -> int:
    """How many devices there may be: as PyTorch counts them, else as many as the library can have."""
    torch = torch_in_use()
    return min(torch.cuda.device_count(), MOST_DEVICES) if torch is not None else MOST_DEVICES


def synchronize(device: int) -> None:
    """Waits for the work of a device that PyTorch uses. The library waits only for streams that it knows."""
    torch = torch_in_use()
    if torch is not None:
        torch.cuda.synchronize(device)


def demand_no_capture(what: str) -> None:
    """Raises VmmError if the current stream is being captured."""
    torch = torch_in_use()
    if torch is not None and torch.cuda.is_current_stream_capturing():
        raise VmmError(f"{what} while a CUDA graph is captured")
