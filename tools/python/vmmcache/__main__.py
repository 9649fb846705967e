"""Says what is installed and whether install() would work. With a file: checks a snapshot. `run`: see _run.py.
`build` compiles the allocator class for this PyTorch, without a GPU, and prints where it is."""
from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import pickle
import sys

from . import _build, _library, _pickle_file, _run, _sizes
from ._check import check_snapshot
from ._errors import VmmError


def main(arguments=None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:
        return _run.main(arguments[1:])
    if arguments == ["build"]:
        return _compile()
    parser = argparse.ArgumentParser(
        prog="python -m vmmcache", description="Says what is installed and whether install() would work. With a file: "
        "checks a snapshot. `python -m vmmcache run` runs a program: see its --help. `python -m vmmcache build` "
        "compiles the allocator class for this PyTorch and prints where it is.")
    parser.add_argument("snapshot", nargs="?", help="a file that dump_snapshot() wrote, to check")
    path = parser.parse_args(arguments).snapshot
    return _report() if path is None else _examine(path)


def _compile() -> int:
    try:
        print(_build.built(importlib.import_module("torch")))
    except (ImportError, VmmError) as error:
        print("python -m vmmcache build:", error, file=sys.stderr)
        return 1
    return 0


def _report() -> int:
    faults = [fault for fault in (_library_line(), _torch_line(), _gpu_line(), _cupy_line()) if fault]
    for fault in faults:
        print("  ->", fault)
    print("install() would", "not work" if faults else "work")
    return 1 if faults else 0


def _library_line():
    print("library:", _library.path())
    try:
        print("  version", _library.version())
        _library.demand_gpu()
    except VmmError as error:
        return str(error)
    return None


def _torch_line():
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        print("PyTorch: missing")
        return f"PyTorch cannot be imported: {error}"
    print("PyTorch:", torch.__version__, "with CUDA", torch.version.cuda)
    if torch.version.cuda is None:
        return "this PyTorch was built without CUDA"
    if not hasattr(torch.cuda.memory, "CUDAPluggableAllocator"):
        return "this PyTorch cannot change its allocator; 2.0 and later can"
    _native_line(torch)
    return None


def _native_line(torch) -> None:
    try:
        is_built = _build.is_built(torch)
    except VmmError as error:
        print("  allocator class: no, install() uses the plug-in:", error)
    else:
        print("  allocator class:", "compiled" if is_built else "the first install() compiles it")


def _cupy_line():
    try:
        print("CuPy:", importlib.import_module("cupy").__version__)
    except ImportError:
        print("CuPy: missing; only install_cupy() needs it")


def _gpu_line():
    """Asks the driver, without making a context on any device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print("GPU: none, libcuda.so.1 is missing")
        return None if os.environ.get("VMM_DRIVER") in ("host", "sim") else "there is no NVIDIA driver"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        print("GPU: none")
        return f"the NVIDIA driver reports error {status}"
    name = ctypes.create_string_buffer(128)
    for device in range(count.value):
        driver.cuDeviceGetName(name, len(name), device)
        print(f"GPU {device}:", name.value.decode(errors="replace"))
    return None if count.value else "there is no GPU"


def _examine(path: str) -> int:
    try:
        snapshot, faults = _pickle_file.read(path)
    except (OSError, pickle.UnpicklingError) as error:
        print(f"{path} is not a snapshot: {error}", file=sys.stderr)
        return 1
    faults += check_snapshot(snapshot)
    for fault in faults:
        print(fault)
    if not faults:
        _describe(snapshot)
    print(f"{path}: {len(faults)} faults")
    return 1 if faults else 0


def _describe(snapshot: dict) -> None:
    devices = {segment["device"] for segment in snapshot["segments"]}
    devices |= {device for device, trace in enumerate(snapshot["device_traces"]) if trace}
    for device in sorted(devices):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        blocks = [block for segment in segments for block in segment["blocks"]]
        live = [block["size"] for block in blocks if block["state"] == "active_allocated"]
        free = [block["size"] for block in blocks if block["state"] == "inactive"]
        trace = snapshot["device_traces"][device] if device < len(snapshot["device_traces"]) else []
        print(f"device {device}: {_sizes.text(sum(live))} live in {len(live)} blocks, "
              f"{_sizes.text(sum(segment['total_size'] for segment in segments))} reserved in "
              f"{len(segments)} segments, largest free block {_sizes.text(max(free, default=0))}, "
              f"{len(trace)} events, {sum(event['action'] == 'oom' for event in trace)} of them out of "
              "memory")


def _command() -> int:
    """main() for a shell, which may close the output early, or send it to a full disk."""
    try:
        status = main()
        print(end="", flush=True)
        return status
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter writes the rest at its end
        print("python -m vmmcache: the output could not be written", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(_command())
