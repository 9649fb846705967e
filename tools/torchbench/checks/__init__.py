"""Checks of how PyTorch and its libraries use memory. Each is a function that raises on failure.

Each runs in a process of its own, with the allocator installed first.
"""
import importlib

# {check and name of its function: module}
PLACES = {
    "matmul": "libraries", "conv": "libraries", "conv_benchmark": "libraries", "fft_and_solvers": "libraries",
    "pinned_copies": "libraries", "data_loader": "libraries", "freed_on_other_threads": "streams",
    "record_stream": "streams", "many_streams": "streams",
    "graph_replay": "graphs", "graph_shared_pool": "graphs", "graph_side_stream": "graphs",
    "graph_callables": "graphs", "graph_beside_thread": "graphs", "graph_released": "graphs",
    "graph_failed_capture": "graphs", "mem_pool": "graphs",
    "cupy": "others", "triton_kernel": "others", "tensor_ipc": "others",
    "peer_copies": "others", "nccl": "others",
}
# Reported, but not counted as a failure: PyTorch's own allocator may not survive it.
TOLD_ONLY = ("graph_failed_capture",)
OURS_ONLY = ("cupy",)
TWO_DEVICES = ("peer_copies", "nccl")


def run(name):
    getattr(importlib.import_module("checks." + PLACES[name]), name)()


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def close(found, wanted, tolerance, text):
    """Raises if two tensors differ by more than `tolerance` times the largest value."""
    found, wanted = found.detach().double().cpu(), wanted.detach().double().cpu()
    off = (found - wanted).abs().max().item() / max(wanted.abs().max().item(), 1e-30)
    expect(off <= tolerance, "%s: off by %.2e" % (text, off))
