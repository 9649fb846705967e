#!/usr/bin/env python3
"""Checks what programs of PyTorch demand of the clock: who may have memory that is still read, beside captures, too.

usage: clock_check.py [--vmmcache] [--native] [CHECK...]

--vmmcache is the allocator class, --native PyTorch's own allocator; by default both. Each check runs in a process of
its own, three at a time. Prints a line for each: PASS, FAIL and why, or SKIP for what this machine cannot do. The exit
status is 1 if a check fails, and 77 where there is no PyTorch with CUDA or no GPU; with VMM_REQUIRE_GPU=1 that is a
failure. Set VMMCACHE_LIBRARY and PYTHONPATH as docs/pytorch.md says.
"""
import contextlib
import ctypes
import sys
import threading

import checks
from checks import MIB, Skip, expect, holds

SIZES_MIB = (1, 4, 64, 512)
LONG = 100_000_000  # clock cycles: 50 ms or more
BESIDE = 3  # threads
CONTEXT = 1  # VMM_CLOCK_CONTEXT
ALONE = ("compiled",)  # it compiles with all processors


def start(**settings):
    """Installs the allocator of this process and returns torch."""
    import torch
    if checks.kind() == "vmmcache":
        import vmmcache
        vmmcache.install(native=True, **settings)
    return torch


def ticks():
    """Events that the clock has recorded, and its kind; 0 for PyTorch's own allocator."""
    if checks.kind() != "vmmcache":
        return 0, 0
    from vmmcache import _figures
    figures = _figures.Figures(0)
    return figures.count("clock_ticks"), figures.count("clock_kind")


def read_beside(torch, count, way):
    """(whether a stream that reads a tensor late sees what it held, if its owner frees it and another stream writes;
    whether it still read when the other one had its memory)"""
    read = torch.ones(count, device="cuda")
    read.sum(dtype=torch.float64).item()  # loads the kernel
    reader, writer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(reader):
        torch.cuda._sleep(LONG)
        total = read.sum(dtype=torch.float64)
    del read

    def write():
        with torch.cuda.stream(writer):
            torch.full((count,), 7.0, device="cuda")

    if way == "empty_cache":
        torch.cuda.empty_cache()
    if way == "thread":
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    else:
        write()
    is_reading = not reader.query()
    torch.cuda.synchronize()
    return total.item() == count, is_reading


def check_undeclared():
    """keeps memory that a stream reads and nothing was said about: four sizes, five times"""
    torch = start()
    found = {(mib, way): [read_beside(torch, mib * MIB // 4, way) for _ in range(5)]
             for mib in SIZES_MIB for way in ("same", "thread", "empty_cache")}
    wrong = ["%d MiB, %s" % case for case, outcomes in found.items() if not all(right for right, _ in outcomes)]
    expect(not wrong, "wrong with " + "; ".join(wrong))
    beside = {case: sum(is_reading for _, is_reading in outcomes) for case, outcomes in found.items()}
    idle = ["%d MiB, %s" % case for case, count in beside.items() if count == 0 and case[1] != "empty_cache"]
    expect(not idle, "the reader had always ended with " + "; ".join(idle))
    return "right in %d, %d of them beside the reader" % (5 * len(found), sum(beside.values()))


def check_undeclared_control():
    """hands memory on too early if uses must be declared and are not, as that mode says"""
    if checks.kind() != "vmmcache":
        raise Skip("there is no such mode")
    torch = start(reuse="declared")
    wrong = sum(not read_beside(torch, 16 * MIB, "same")[0] for _ in range(5))
    expect(wrong > 0, "the reader saw what it should: the check of undeclared uses would not see it")
    return "wrong in %d of 5" % wrong


@contextlib.contextmanager
def threads_beside(torch):
    """Threads that allocate, fill, check and free tensors, each on a stream of its own."""
    ended, faults, rounds = threading.Event(), [], [0] * BESIDE

    def run(thread):
        with torch.cuda.stream(torch.cuda.Stream()):
            while not ended.is_set():
                kept = [torch.full((1 << 18,), float(number), device="cuda") for number in range(8)]
                faults.extend("tensor %d" % number for number, each in enumerate(kept) if not holds(each, number))
                rounds[thread] += 1

    def run_guarded(thread):
        try:
            run(thread)
        except Exception as error:
            faults.append(repr(error))

    threads = [threading.Thread(target=run_guarded, args=(number,)) for number in range(BESIDE)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    expect(not faults, "wrong in other threads: " + "; ".join(faults[:3]))
    expect(all(rounds), "a thread made no round")


def check_captures():
    """captures a hundred graphs beside three threads that allocate, and replays each three times"""
    torch = start()
    static, graphs = torch.zeros(1 << 20, device="cuda"), []
    with threads_beside(torch):
        for _ in range(100):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                output = (static * 2 + 1) * 3
            graphs.append((graph, output))
        right = 0
        for value in (5.0, 6.0, 7.0):
            static.fill_(value)
            for graph, output in graphs:
                graph.replay()
                right += holds(output, (value * 2 + 1) * 3)
    expect(right == 300, "%d of 300 replays are right" % right)
    return "300 of 300 replays right"


def check_compiled():
    """compiles with mode='reduce-overhead', and captures and replays four shapes alone and four beside three threads"""
    torch = start()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
    fast = torch.compile(model, mode="reduce-overhead")

    def steps(inputs):
        expected = [model(each) for each in inputs]
        for step in range(15 * len(inputs)):
            torch.compiler.cudagraph_mark_step_begin()
            got = fast(inputs[step % len(inputs)])
            expect(torch.allclose(got, expected[step % len(inputs)], atol=1e-3),
                   "step %d computes something else" % step)

    with torch.no_grad():
        shapes = [torch.randn(rows, 256, device="cuda") for rows in range(32, 32 * 8 + 1, 32)]
        steps(shapes[:4])
        with threads_beside(torch):
            steps(shapes[4:])
    skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    expect(skips == 0, "%d shapes were not captured" % skips)


def capture_failed(torch, way):
    """Begins a capture and fails in it."""
    static = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            doubled = static * 2
            if way == "exception":
                raise ValueError("a mistake in the program")
            if way == "wait":
                torch.cuda.synchronize()
            if way == "memory":
                torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
            del doubled
    except (ValueError, RuntimeError):
        return
    raise AssertionError("a capture with %s did not fail" % way)


def check_captures_failed():
    """serves another stream after each of 240 captures that fail: an exception, a wait within, out of memory"""
    torch = start()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.ones(1, device="cuda")  # the figures begin with the first request
    begin, kind = ticks()
    for number in range(240):
        capture_failed(torch, ("exception", "wait", "memory")[number % 3])
        with torch.cuda.stream(first):
            freed = torch.full((16 * MIB,), -1.0, device="cuda")
        del freed
        first.synchronize()
        with torch.cuda.stream(second):
            expect(holds(torch.full((16 * MIB,), float(number), device="cuda"), number), "round %d is wrong" % number)
    end, kind_now = ticks()
    expect(checks.kind() == "native" or kind_now == kind == CONTEXT,
           "the clock's kind was %d, then %d" % (kind, kind_now))
    reserved = torch.cuda.max_memory_reserved() // MIB
    expect(reserved <= 512 or checks.kind() == "native", "%d MiB were reserved" % reserved)
    return "%d MiB reserved at most, %d ticks" % (reserved, end - begin)


def cupy_captures(cupy, stream, array):
    """(twice the array, as a graph computes it; whether the capture was spoiled)"""
    stream.begin_capture()
    try:
        doubled = array * 2
    except cupy.cuda.driver.CUDADriverError:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
            stream.end_capture()
        return None, True
    try:
        stream.end_capture().launch(stream)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None, True
    return doubled, False


def check_captures_cupy():
    """loses at most one of a hundred captures of CuPy, which are not announced, beside three threads that allocate"""
    torch = start()
    if checks.kind() != "vmmcache":
        raise Skip("CuPy has no allocator for captures")
    try:
        import cupy
    except ImportError:
        raise Skip("there is no CuPy") from None
    import vmmcache
    vmmcache.install_cupy()
    right = spoiled = 0
    with threads_beside(torch):
        for number in range(100):
            with cupy.cuda.Stream(non_blocking=True) as stream:
                doubled, was_spoiled = cupy_captures(cupy, stream, cupy.full(1 << 18, number, dtype=cupy.float32))
                spoiled += was_spoiled
                right += not was_spoiled and bool((doubled == 2 * number).all())
    expect(right >= 99 and right + spoiled == 100, "%d graphs are right, %d captures were spoiled" % (right, spoiled))
    return "%d of 100 right, %d spoiled" % (right, spoiled)


def check_captures_unannounced():
    """loses at most one of 50 captures that a library begins without a word, beside three threads that allocate"""
    torch = start()
    runtime = ctypes.CDLL("libcudart.so.%s" % torch.version.cuda.split(".", maxsplit=1)[0])
    thread_local, spoiled = 1, 0
    static = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    handle, graph = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p()
    torch.cuda.synchronize()
    with threads_beside(torch), torch.cuda.stream(stream):
        for _ in range(50):
            begun = runtime.cudaStreamBeginCapture(handle, thread_local)
            expect(begun == 0, "cudaStreamBeginCapture: %d" % begun)
            is_spoiled = False
            try:
                static.add_(1)
            except RuntimeError:
                is_spoiled = True
            if runtime.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0:
                expect(not is_spoiled and runtime.cudaGraphDestroy(graph) == 0, "a capture without its work ended well")
            else:
                is_spoiled = True
            spoiled += is_spoiled
            runtime.cudaGetLastError()
    expect(holds(static, 0.0), "work of a capture ran")
    expect(spoiled <= 1, "%d were spoiled" % spoiled)
    return "%d spoiled" % spoiled


if __name__ == "__main__":
    checks.main(__file__, checks.find(dict(globals())), ["vmmcache", "native"], sys.argv[1:], alone=ALONE, jobs=3)
