#!/usr/bin/env python3
"""Checks the allocator class with a real PyTorch on a GPU.

usage: native_check.py [CHECK...]

Compiles the class, installs it and runs each check in a process of its own, six at a time. Prints a line for each:
PASS, FAIL and why, or SKIP for what this machine cannot do. The exit status is 1 if a check fails, and 77 where there
is no PyTorch with CUDA or no GPU; with VMM_REQUIRE_GPU=1 that is a failure. Set VMMCACHE_LIBRARY and PYTHONPATH as
docs/pytorch.md says.
"""
import ctypes
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time

import checks
from checks import CHECK_SECONDS, MIB, Skip, expect, holds

ALONE = ("tensors", "bypass", "oom", "ipc")  # they measure time, or the memory of the device


def start(**settings):
    """Installs the class and returns (torch, vmmcache)."""
    import torch
    import vmmcache
    vmmcache.install(native=True, **settings)
    return torch, vmmcache


def check_install():
    """compiles and installs"""
    began = time.monotonic()
    torch, vmmcache = start()
    took = time.monotonic() - began
    torch.zeros(1, device="cuda")
    expect(vmmcache.capabilities()["native"], "capabilities() says that the plug-in is installed")
    expect(torch.cuda.get_allocator_backend() == "vmmcache", torch.cuda.get_allocator_backend())
    return "%.1f s; PyTorch %s" % (took, torch.__version__)


def check_tensors():
    """allocates and frees"""
    torch, vmmcache = start()
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    y = (x * 2).sum().item()
    expect(y == float(2 * sum(range(1 << 20))), "a sum is %r" % y)
    expect(torch.cuda.memory_allocated() == vmmcache.memory_allocated() == 4 * MIB,
           "%d bytes are allocated" % torch.cuda.memory_allocated())
    del x
    expect(torch.cuda.memory_allocated() == 0, "%d bytes are left" % torch.cuda.memory_allocated())
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_reserved() == 0, "%d bytes stay reserved" % torch.cuda.memory_reserved())
    return "%.0f ns for an allocation and its free" % hot_ns(torch)


def hot_ns(torch):
    """Through the C++ interface that tensors use, without a kernel."""
    rounds = 200000
    for _ in range(1000):
        torch.empty(1024, device="cuda")
    began = time.perf_counter()
    for _ in range(rounds):
        torch.empty(1024, device="cuda")
    return (time.perf_counter() - began) / rounds * 1e9


def check_bypass():
    """takes memory of cudaMalloc() while caching is off"""
    torch, vmmcache = start()
    torch.zeros(1, device="cuda")
    before = vmmcache.memory_allocated()
    torch.cuda.caching_allocator_enable(False)
    x = torch.ones(64 * MIB, device="cuda")
    expect(vmmcache.memory_allocated() == before, "it comes from the library")
    expect(x.sum().item() == 64 * MIB, "the sum is wrong")
    torch.cuda.caching_allocator_enable(True)
    free, _ = torch.cuda.mem_get_info()
    del x
    expect(torch.cuda.mem_get_info()[0] >= free + 256 * MIB, "it did not go back")


def check_streams():
    """keeps memory that other streams use"""
    torch, _ = start()
    side = torch.cuda.Stream()
    for number in range(200):
        x = torch.full((1 << 20,), float(number), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(100000)
            total = x.sum()
        x.record_stream(side)
        del x
        torch.full((1 << 20,), -1.0, device="cuda")  # must not take the memory yet
        torch.cuda.current_stream().wait_stream(side)
        expect(total.item() == number * (1 << 20), "round %d: %r" % (number, total.item()))


def check_threads():
    """keeps memory that other threads use and free, on streams of their own"""
    import queue
    import threading
    torch, _ = start()
    passed, wrong = queue.Queue(maxsize=64), []

    def make(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(200):
                made = torch.full((7919 * (step + number) % (1 << 20) + 1,), number * 1000 + step, device="cuda")
                passed.put((number * 1000 + step, made, torch.cuda.current_stream().record_event()))
                del made
        passed.put(None)

    def take():
        with torch.cuda.stream(torch.cuda.Stream()):
            for value, made, event in iter(passed.get, None):
                torch.cuda.current_stream().wait_event(event)
                made.record_stream(torch.cuda.current_stream())
                if not holds(made, value):
                    wrong.append(value)
                del made

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    threads += [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not wrong, "%d tensors were overwritten" % len(wrong))


def check_oom():
    """raises PyTorch's error and goes on"""
    torch, _ = start()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: seen.append(what))
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        raise AssertionError("twice the device's memory was allocated")
    except torch.OutOfMemoryError as error:
        expect("Tried to allocate" in str(error), str(error))
    expect(len(seen) == 1, "the observer was called %d times" % len(seen))
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda")
        raise AssertionError("the fraction is no limit")
    except torch.OutOfMemoryError:
        pass
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda")
    expect(torch.cuda.memory_stats()["num_ooms"] == 2, torch.cuda.memory_stats()["num_ooms"])


def check_graphs():
    """captures and replays graphs that share a pool"""
    torch, _ = start()
    static = torch.ones(1 << 20, device="cuda")
    pool, graphs, outputs = torch.cuda.graph_pool_handle(), [], []
    for factor in (2.0, 3.0):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step = static * factor
            outputs.append(step + 1)
        graphs.append(graph)
    for round_ in range(10):
        static.fill_(round_)
        noise = [torch.full((1 << 18,), -1.0, device="cuda") for _ in range(8)]
        for graph in graphs:
            graph.replay()
        got = [each.mean().item() for each in outputs]
        expect(got == [round_ * 2.0 + 1, round_ * 3.0 + 1], "round %d: %r" % (round_, got))
        del noise
    kept, outputs = outputs, None
    del graphs, graph, step
    noise = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(8)]
    expect([each.mean().item() for each in kept] == got, "outputs that outlive their graphs have changed")
    del kept, noise
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_reserved() <= 32 * MIB, "%d bytes stay reserved" % torch.cuda.memory_reserved())


def check_graphs_beside_thread():
    """captures while another thread allocates, frees and waits"""
    import threading
    torch, _ = start()
    static, ended, wrong = torch.ones(1 << 20, device="cuda"), threading.Event(), []

    def beside():
        with torch.cuda.stream(torch.cuda.Stream()):
            while not ended.is_set():
                kept = [torch.full((1 << 18,), number, device="cuda") for number in range(8)]
                wrong.extend(number for number, each in enumerate(kept) if not holds(each, number))

    thread = threading.Thread(target=beside)
    thread.start()
    graphs = [torch.cuda.CUDAGraph() for _ in range(5)]
    try:
        outputs = []
        for graph in graphs:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs.append((static * 2 + 1) * 3)
    finally:
        ended.set()
        thread.join()
    expect(not wrong, "tensors of the other thread were overwritten")
    static.fill_(5)
    for graph, output in zip(graphs, outputs):
        graph.replay()
        expect(holds(output, 33), "a graph computes something else")


def lies_in(tensor, pool):
    return any(segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
               for segment in pool.snapshot())


def check_mempool():
    """allocates to a torch.cuda.MemPool, and to one in its context"""
    torch, _ = start()
    pool, nested = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        before = torch.ones(1 << 20, device="cuda")
        with torch.cuda.use_mem_pool(nested):
            deeper = torch.ones(1 << 20, device="cuda")
        after = torch.ones(1 << 20, device="cuda")
    outside = torch.ones(1 << 20, device="cuda")
    expect(pool.use_count() == 1, "it has %d uses" % pool.use_count())
    expect([lies_in(each, pool) for each in (before, deeper, after, outside)] == [True, False, True, False] and
           [lies_in(each, nested) for each in (before, deeper, after)] == [False, True, False],
           "a block is in the snapshot of another pool")
    expect(all(each.sum().item() == 1 << 20 for each in (before, deeper, after)), "contents are wrong")
    del before, deeper, after, pool, nested
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_allocated() == 4 * MIB, "%d bytes are left" % torch.cuda.memory_allocated())


def check_mempool_shared():
    """lends a pool's memory with use_on_oom"""
    torch, _ = start()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1 * 1024 * MIB / total)
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
    torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
    expect(pool.use_count() == 1, "it has %d uses" % pool.use_count())
    with torch.cuda.use_mem_pool(pool):
        inside = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        doubled = inside * 2
    del pool  # its memory is that of the tensor and of the graph
    torch.full((100 * MIB,), 7.0, device="cuda")
    graph.replay()
    expect(doubled.sum().item() == 2 << 20, "the graph that outlives its pool computes something else")


def check_mempool_no_split():
    """keeps the blocks of a pool with no_split whole"""
    torch, _ = start()
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        address = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda").data_ptr()
        part = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda").data_ptr()
        again = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda").data_ptr()
    expect(not address <= part < address + 20 * MIB, "a smaller tensor got a part of a freed block")
    expect(again == address, "the freed block was not used again")


# An allocator for a pool: memory of the driver, counted.
SEGMENTS = r"""
#include <dlfcn.h>
#include <stddef.h>
typedef int (*take)(unsigned long long *, size_t);
typedef int (*give)(unsigned long long);
long allocs, frees;
static void *driver(const char *name)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}
void *segment_alloc(ptrdiff_t bytes, int device, void *stream)
{
    unsigned long long address = 0;
    allocs++;
    return ((take)driver("cuMemAlloc_v2"))(&address, (size_t)bytes) == 0 ? (void *)address : NULL;
}
void segment_free(void *segment, ptrdiff_t bytes, int device, void *stream)
{
    frees += ((give)driver("cuMemFree_v2"))((unsigned long long)segment) == 0;
}
"""


def segments_build(folder):
    """Returns the path of the allocator's library, and its counts of segments made and freed."""
    source, path = os.path.join(folder, "segments.c"), os.path.join(folder, "segments.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(SEGMENTS)
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Skip("there is no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", path, "-ldl"], check=True)
    library = ctypes.CDLL(path)
    return path, ctypes.c_long.in_dll(library, "allocs"), ctypes.c_long.in_dll(library, "frees")


def pool_steps(torch):
    """Returns what the steps computed; the tensors lie in the pool that is used."""
    numbers = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    for _ in range(20):
        numbers = numbers * 1.5 + torch.flip(numbers, (0,))
    return numbers


def check_mempool_allocator():
    """takes the memory of a torch.cuda.MemPool from an allocator of its own"""
    torch, _ = start()
    with tempfile.TemporaryDirectory() as folder:
        path, allocs, frees = segments_build(folder)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "segment_alloc", "segment_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            inside = pool_steps(torch)
            small = torch.ones(10, device="cuda")
        count = allocs.value
        expect(1 < count <= 4, "%d segments were made" % count)
        expect(torch.equal(inside, pool_steps(torch)), "the pool computes something else")
        expect(allocs.value == count, "a tensor outside of the pool has a segment")
        expect(lies_in(inside, pool) and lies_in(small, pool), "a tensor is not in the snapshot of its pool")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            doubled = inside * 2
        graph.replay()
        expect(torch.equal(doubled, inside * 2), "a graph of the pool computes something else")
        count = allocs.value
        del graph, doubled, pool
        expect(torch.equal(inside, pool_steps(torch)), "the tensor that outlives its pool has changed")
        del inside, small
        torch.cuda.empty_cache()
        expect(frees.value == allocs.value == count, "%d of %d segments were freed" % (frees.value, allocs.value))
        return "%d segments" % count


def check_snapshot():
    """records history with stacks of Python and C++"""
    torch, vmmcache = start()
    torch.cuda.memory._record_memory_history(stacks="all")
    kept = torch.ones(5 * MIB, device="cuda")
    for _ in range(10):
        torch.ones(MIB, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    faults = vmmcache.check_snapshot(comparable(snapshot))
    expect(not faults, "%d faults, first: %s" % (len(faults), faults[:1]))
    events = snapshot["device_traces"][0]
    expect(sum(event["action"] == "alloc" for event in events) >= 11, "%d events" % len(events))
    names = {frame["name"] for event in events for frame in event["frames"]}
    expect("check_snapshot" in names, "no frame of Python")
    expect(any("at::" in name for name in names), "no frame of C++")
    live = [block for segment in snapshot["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated" and block["requested_size"] == kept.nbytes]
    expect(len(live) == 1 and live[0]["frames"], "the live block has no stack")
    torch.cuda.memory._record_memory_history(clear_history=True)
    left = torch.cuda.memory._snapshot()["device_traces"][0]
    expect(not any(event["action"] == "alloc" for event in left), "events are left after clear_history")
    torch.cuda.memory._record_memory_history(None)
    return "%d events, %d names" % (len(events), len(names))


def comparable(snapshot):
    """PyTorch leaves out pool_id of events where a version does not tell it, and adds fields."""
    for trace in snapshot["device_traces"]:
        for event in trace:
            event.setdefault("pool_id", (0, 0))
            event.setdefault("user_metadata", "")
            event.setdefault("compile_context", "N/A")
            event.setdefault("frames", [])
    for segment in snapshot["segments"]:
        segment.setdefault("frames", [])
        for block in segment["blocks"]:
            block.setdefault("frames", [])
    snapshot.setdefault("external_annotations", [])
    return snapshot


def check_cudnn():
    """runs cuDNN's benchmark mode"""
    torch, _ = start()
    torch.backends.cudnn.benchmark = True
    convolution = torch.nn.Conv2d(8, 16, 3).cuda()
    expect(convolution(torch.ones(4, 8, 32, 32, device="cuda")).shape == (4, 16, 30, 30), "the shape is wrong")


def demand_compiler():
    """Triton needs one."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise Skip("there is no C compiler")


def compiled(torch, mode):
    """Runs a function that torch.compile made, in several branches, and compares it."""
    demand_compiler()
    layer = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()

    def calculate(x, flag):
        y = layer(x)
        return y * 2 if flag else y + x

    fast = torch.compile(calculate, mode=mode)
    for step in range(12):
        x = torch.randn(64, 256, device="cuda", requires_grad=step % 3 == 0)
        flag = step % 2 == 0
        wanted = calculate(x, flag)
        if hasattr(torch.compiler, "cudagraph_mark_step_begin"):
            torch.compiler.cudagraph_mark_step_begin()
        got = fast(x, flag)
        expect(torch.allclose(wanted, got, atol=1e-3), "step %d differs" % step)
        if x.requires_grad:
            got.sum().backward()
            layer.zero_grad()  # gradients are outputs of graphs, which the next backward pass overwrites


def check_compile():
    """runs torch.compile"""
    torch, _ = start()
    compiled(torch, None)


TREE_STEPS, TREE_ROWS, TREE_WIDTH = 24, (64, 96), 256
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def tree_steps(torch):
    """Trains three compiled parts of a model, in changing order and in two shapes: outputs and gradients of each step.
    References to the outputs of earlier steps stay, and copies of them must not change."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    parts = [torch.nn.Sequential(torch.nn.Linear(TREE_WIDTH, TREE_WIDTH), torch.nn.Tanh(),
                                 torch.nn.Linear(TREE_WIDTH, TREE_WIDTH)).cuda() for _ in range(3)]
    fast = [torch.compile(part, mode="reduce-overhead", dynamic=False) for part in parts]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    found, copies, kept = [], [], []
    for step in range(TREE_STEPS):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(TREE_ROWS[step // 2 % 2], TREE_WIDTH, device="cuda", requires_grad=True)
        y = fast[0](x)
        z = fast[1 + step // 4 % 2](y)
        z.square().mean().backward()
        tensors = [y.detach(), z.detach(), x.grad] + [each.grad for each in parameters if each.grad is not None]
        found.append([tensor.cpu() for tensor in tensors])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        copies.append(z.detach().clone())
        kept = kept[-4:] + [(y, z)]  # the next step takes their memory
        del tensors, x, y, z
    for step, copy in enumerate(copies):
        expect(torch.equal(copy.cpu(), found[step][1]), "a copy of the output of step %d has changed" % step)
    return found


def demand_trees(torch):
    """Each part has a graph for its forward and its backward pass in each shape, and none ran without."""
    from torch._dynamo.utils import counters
    from torch._inductor.cudagraph_trees import get_manager
    skips, graphs = counters["inductor"]["cudagraph_skips"], get_manager(torch.cuda.current_device()).new_graph_id().id
    expect(skips == 0 and graphs >= 3 * 2 * len(TREE_ROWS), "%d graphs, %d functions without" % (graphs, skips))


def tree_run(path, is_ours):
    """In a process of its own: writes the outcome of tree_steps(), or why it fails."""
    if is_ours:
        start()
    import torch._inductor.config
    torch._inductor.config.triton.slow_path_cudagraph_asserts = True
    try:
        outcome = tree_steps(torch)
        demand_trees(torch)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        outcome = "%s: %s" % (type(error).__name__, lines[0] if lines else "")
    torch.save(outcome, path)


def tree_start(folder, name, is_ours, **environment):
    """Starts it: the process, and the path of its outcome."""
    path = os.path.join(folder, name)
    os.environ.update(environment)
    process = multiprocessing.get_context("spawn").Process(target=tree_run, args=(path, is_ours))
    process.start()  # it has the environment of now
    for key in environment:
        del os.environ[key]
    return process, path


def tree_outcome(process, path):
    """What it computed, or why it failed."""
    import torch
    process.join(CHECK_SECONDS)
    if process.exitcode != 0:
        process.kill()
        return "status %r" % process.exitcode
    return torch.load(path)


def tree_difference(torch, ours, theirs):
    """How two outcomes differ; empty: not a bit."""
    for step, pair in enumerate(zip(ours, theirs)):
        if len(pair[0]) != len(pair[1]):
            return "%d tensors of step %d for %d" % (len(pair[0]), step, len(pair[1]))
        for number, (one, other) in enumerate(zip(*pair)):
            if not torch.equal(one, other):
                return "tensor %d of step %d by up to %g" % (number, step, (one - other).abs().max().item())
    return ""


def check_graph_trees_gradients():
    """trains through graph trees: outputs and gradients of PyTorch's allocator, bit for bit"""
    import torch
    demand_compiler()
    os.environ.update(DETERMINISTIC)
    for name in ALLOCATOR_SETTINGS:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        ours = tree_outcome(*tree_start(folder, "ours", True))  # alone, so that the others find its kernels
        runs = [tree_start(folder, "theirs", False),
                tree_start(folder, "expandable", False, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")]
        theirs, expandable = (tree_outcome(*run) for run in runs)
    for who, outcome in (("vmmcache", ours), ("PyTorch's allocator", theirs)):
        expect(not isinstance(outcome, str), "%s: %s" % (who, outcome))
        expect(len(outcome) == TREE_STEPS, "%s made %d steps" % (who, len(outcome)))
    difference = tree_difference(torch, ours, theirs)
    expect(not difference, "it differs from PyTorch's allocator: " + difference)
    if isinstance(expandable, str):
        return "with expandable segments (pytorch#161356) PyTorch's own fails: " + expandable
    return "with expandable segments (pytorch#161356) PyTorch's own runs: %s" % (
        tree_difference(torch, ours, expandable) or "the same")


def check_plain_graphs():
    """runs torch.compile(mode='reduce-overhead') with plain graphs"""
    torch, _ = start(plain_graphs=True)
    compiled(torch, "reduce-overhead")


IPC_TENSORS, IPC_WINDOW = 10000, 100
IPC_SIZES = (1, 100, 3000, 70000, 600000)


def figures(torch):
    """What a process holds: open files, bytes of its own, bytes of other processes."""
    import gc

    from vmmcache._figures import Figures
    gc.collect()
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()  # unmaps memory that work still used when it was freed
    own = sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))
    imported = sum(Figures(device).number("imported_bytes") for device in range(torch.cuda.device_count()))
    return len(os.listdir("/proc/self/fd")), own, imported


def ipc_answer(there, back):
    """In the other process: checks each tensor, changes it, and answers with one of its own."""
    torch, _ = start()
    kept = []
    while True:
        order, number, tensor, part = there.get(timeout=CHECK_SECONDS)
        if order == "end":
            kept = []
            back.put(figures(torch))
        elif order == "exit":
            return
        else:
            right = holds(tensor, number) and part.data_ptr() == tensor[-1:].data_ptr()
            tensor.add_(1)
            answer = torch.full_like(tensor, -number)
            torch.cuda.synchronize()
            kept = kept[-IPC_WINDOW:] + [answer]  # PyTorch keeps it too, until the receiver has dropped it
            back.put((number, right, answer))
            del answer
        del tensor, part


def ipc_window(torch, there, back, first, count):
    """Sends some tensors, and checks the answers."""
    sent = {}
    for number in range(first, first + count):
        device = "cuda:%d" % (number % torch.cuda.device_count())
        sent[number] = torch.full((IPC_SIZES[number % len(IPC_SIZES)],), number, device=device, dtype=torch.int32)
        there.put(("check", number, sent[number], sent[number][-1:]))
    for _ in range(count):
        number, right, answer = back.get(timeout=CHECK_SECONDS)
        expect(right, "the other process read something else in tensor %d" % number)
        expect(holds(sent[number], number + 1), "tensor %d does not have what the other process wrote" % number)
        expect(holds(answer, -number), "the answer to tensor %d is wrong" % number)
        del sent[number], answer


def ipc_figures(torch, there, back):
    there.put(("end", 0, None, None))
    return figures(torch), back.get(timeout=CHECK_SECONDS)


def check_ipc():
    """passes 10 000 tensors through queues, and as many back"""
    torch, _ = start()
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=ipc_answer, args=(there, back), daemon=True)
    child.start()
    ipc_window(torch, there, back, 0, IPC_WINDOW)
    before = ipc_figures(torch, there, back)
    began = time.monotonic()
    for first in range(IPC_WINDOW, IPC_TENSORS, IPC_WINDOW):
        ipc_window(torch, there, back, first, IPC_WINDOW)
    took = time.monotonic() - began
    after = ipc_figures(torch, there, back)
    there.put(("exit", 0, None, None))
    child.join(CHECK_SECONDS)
    expect(child.exitcode == 0, "the other process ended with %r" % child.exitcode)
    for side, was, is_ in zip(("this", "the other"), before, after):
        # PyTorch opens a file for each 10 000 reference counts
        expect(is_[0] <= was[0] + 4, "%s process has %d open files, %d before" % (side, is_[0], was[0]))
        expect(is_[1] <= was[1], "%s process has %d bytes, %d before" % (side, is_[1], was[1]))
        expect(is_[2] == 0, "%s process has mapped %d bytes of the other" % (side, is_[2]))
    return "%.2f ms a tensor there and back; files %d and %d" % (
        took * 1e3 / (IPC_TENSORS - IPC_WINDOW), after[0][0], after[1][0])


def ipc_leave(back, read):
    """In the other process: sends two tensors and ends."""
    torch, _ = start()
    for number in (1, 2):
        back.put(torch.full((1000,), number, device="cuda", dtype=torch.int32))
        if number == 1:
            read.wait(CHECK_SECONDS)
    back.close()
    back.join_thread()
    os._exit(0)


def check_ipc_gone():
    """keeps memory whose process has ended, and refuses what it cannot open"""
    torch, _ = start()
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("spawn")
    back, read = context.Queue(), context.Event()
    child = context.Process(target=ipc_leave, args=(back, read), daemon=True)
    child.start()
    first = back.get(timeout=CHECK_SECONDS)
    read.set()
    child.join(CHECK_SECONDS)
    expect(holds(first, 1), "the memory of the process that ended has changed")
    try:
        back.get(timeout=CHECK_SECONDS)
        raise AssertionError("memory of a process that has ended was opened")
    except RuntimeError as error:
        told = str(error).splitlines()[0]
    expect(holds(first, 1), "the memory of the process that ended has changed")
    torch.ones(10, device="cuda").sum().item()
    return told


class IpcItems:
    """A data set whose items are CUDA tensors."""

    def __len__(self):
        return 200

    def __getitem__(self, number):
        import torch
        return torch.full((number + 1,), number, device="cuda")


def ipc_worker(_):
    start()


def check_ipc_loader():
    """reads CUDA tensors from DataLoader's workers"""
    torch, _ = start()
    from torch.utils.data import DataLoader
    loader = DataLoader(IpcItems(), batch_size=None, num_workers=2, multiprocessing_context="spawn",
                        worker_init_fn=ipc_worker)
    count = 0
    for number, item in enumerate(loader):
        expect(item.shape == (number + 1,) and holds(item, number), "item %d is wrong" % number)
        count += 1
    expect(count == 200, "%d items" % count)


class HostItems(IpcItems):
    """A data set whose items are in memory of the host."""

    def __getitem__(self, number):
        import torch
        return torch.full((number + 1,), number)


def check_loader_forked():
    """reads from DataLoader's workers that are forked after the GPU is in use, through pinned memory"""
    torch, _ = start()
    from torch.utils.data import DataLoader
    torch.zeros(MIB, device="cuda")
    loader = DataLoader(HostItems(), batch_size=None, num_workers=4, pin_memory=True, multiprocessing_context="fork")
    for _ in range(2):
        wrong = [number for number, item in enumerate(loader) if not holds(item.cuda(non_blocking=True), number)]
        expect(not wrong, "items %r are wrong" % wrong)


def check_cupy():
    """shares memory with CuPy after install_cupy()"""
    torch, vmmcache = start()
    try:
        import cupy
    except ImportError:
        raise Skip("there is no CuPy") from None
    vmmcache.install_cupy()
    before = vmmcache.memory_allocated()
    x = cupy.arange(4 * MIB, dtype=cupy.int64)
    expect(vmmcache.memory_allocated() >= before + x.nbytes, "CuPy does not allocate from the library")
    there = torch.from_dlpack(x)
    there += 1
    expect(int(x.sum()) == sum(range(1, 4 * MIB + 1)), "PyTorch and CuPy do not share the array")
    with cupy.cuda.Stream(non_blocking=True):
        expect(float(cupy.ones(MIB).sum()) == MIB, "a sum on a stream of CuPy's is wrong")
    del x, there
    expect(vmmcache.memory_allocated() <= before + MIB, "CuPy's memory was not freed")


def check_ipc_off():
    """does not share with ipc=False"""
    torch, _ = start(ipc=False)
    import torch.multiprocessing  # noqa: F401 registers how tensors are sent
    from multiprocessing.reduction import ForkingPickler
    try:
        ForkingPickler.dumps(torch.ones(MIB, device="cuda"))
    except RuntimeError as error:
        expect("cannot be shared" in str(error), str(error))
        return
    raise AssertionError("a tensor was shared")


def check_fraction_of_settings():
    """honours PYTORCH_ALLOC_CONF=per_process_memory_fraction (2.10 and later)"""
    os.environ["PYTORCH_ALLOC_CONF"] = "per_process_memory_fraction:0.25"
    torch, _ = start()
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
        raise Skip("PyTorch %s does not know it" % torch.__version__)
    torch.zeros(1, device="cuda")
    fraction = torch.cuda.get_per_process_memory_fraction()
    expect(abs(fraction - 0.25) < 1e-6, "the fraction is %r" % fraction)
    torch.cuda.set_per_process_memory_fraction(1.0)
    expect(torch.cuda.get_per_process_memory_fraction() == 1.0, "the fraction stays")


def peers_of(device):
    """The devices that can access the memory of one."""
    import ctypes
    from vmmcache import _library
    library, mask = _library.load(), ctypes.c_uint64()
    library.vmm_peers_get.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]
    expect(library.vmm_peers_get(library.vmm_torch_cache(device), ctypes.byref(mask)) == 0, "no answer")
    return {ordinal for ordinal in range(64) if mask.value >> ordinal & 1}


def copies_verify(torch, x):
    """Copies as a whole and with strides, there and back; the latter are kernels that access the other device."""
    expect(torch.equal(x.cpu(), x.to("cuda:1").cpu()), "the copy differs")
    half = torch.empty(x.numel() // 2, device="cuda:1", dtype=x.dtype).copy_(x[::2])
    expect(torch.equal(x.cpu()[::2], half.cpu()), "a copy with strides differs")
    back = torch.empty(2 * half.numel(), device="cuda:0", dtype=x.dtype)
    back[1::2].copy_(half)
    expect(torch.equal(back[1::2].cpu(), half.cpu()), "a copy with strides back differs")


def two_gpus(**settings):
    torch, _ = start(**settings)
    if torch.cuda.device_count() < 2:
        raise Skip("there is one GPU")
    if not torch.cuda.can_device_access_peer(0, 1):
        raise Skip("the GPUs cannot access each other's memory")
    return torch


def check_peers():
    """copies between devices: access on demand, to memory of before and after"""
    import vmmcache
    torch = two_gpus()
    pool = torch.cuda.MemPool()
    with vmmcache.region("asleep"):
        slept = torch.arange(8 * MIB, device="cuda:0")
    vmmcache.sleep("asleep")
    with torch.cuda.use_mem_pool(pool):
        pooled = torch.arange(4 * MIB, device="cuda:0")
    old = [torch.arange(size, device="cuda:0") for size in (100, MIB, 40 * MIB)]
    other = torch.ones(MIB, device="cuda:1")
    expect(not peers_of(0) and not peers_of(1), "devices have access before PyTorch asked")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = pooled * 2
    for x in old:
        copies_verify(torch, x)
    expect(peers_of(0) == {1} and peers_of(1) == {0}, "devices have no access after copies")
    graph.replay()
    vmmcache.wake("asleep")
    for x in (pooled, slept, captured, *[torch.arange(size, device="cuda:0") for size in (300, 3 * MIB, 90 * MIB)]):
        copies_verify(torch, x)
    del old
    torch.cuda.empty_cache()
    copies_verify(torch, torch.arange(70 * MIB, device="cuda:0"))
    expect(other.sum().item() == MIB, "a tensor of the other device changed")


def check_peers_listed():
    """devices that are listed have access at once"""
    torch = two_gpus(peers=[0, 1])
    x = torch.arange(MIB, device="cuda:0")
    expect(peers_of(0) == {1}, "a device that is listed has no access")
    copies_verify(torch, x)


def check_peers_none():
    """PyTorch's wish for access is refused if peers is None"""
    torch = two_gpus(peers=None)
    x = torch.arange(MIB, device="cuda:0")
    try:
        x.to("cuda:1")
    except RuntimeError as error:
        expect("peers=" in str(error), str(error))
        expect(not peers_of(0), "a device has access")
        return
    raise AssertionError("the copy was made")


def nccl_start():
    """(torch, torch.distributed, the NCCL backend) of a group of one."""
    torch, _ = start()
    import torch.distributed as distributed
    if not distributed.is_nccl_available():
        raise Skip("PyTorch has no NCCL")
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1,
                                   device_id=torch.device("cuda:0"))
    return torch, distributed, distributed.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))


def check_nccl():
    """runs NCCL"""
    torch, distributed, _ = nccl_start()
    x = torch.ones(8 * MIB, device="cuda")
    distributed.all_reduce(x)
    expect(x.sum().item() == 8 * MIB, "the sum is wrong")
    distributed.destroy_process_group()


def pool_registered(torch, distributed, backend, pool):
    """Registers a pool with NCCL, grows it, and sleeps and wakes in between."""
    import vmmcache
    kept = []
    for size in (4, 30, 70):
        with torch.cuda.use_mem_pool(pool):
            kept.append(torch.ones(size * MIB, device="cuda"))
        if len(kept) == 1:
            backend.register_mem_pool(pool)
        vmmcache.sleep()
        vmmcache.wake()
        for x in kept:
            distributed.all_reduce(x)
            expect(x.eq(1).all().item(), "the sum is wrong")
    expect(pool.use_count() == 1, "the pool has %d uses" % pool.use_count())
    backend.deregister_mem_pool(pool)  # an error, if it has other segments than were registered
    backend.register_mem_pool(pool)


def check_nccl_registration():
    """registers MemPools with NCCL while they grow, lend, sleep and end"""
    torch, distributed, backend = nccl_start()
    for settings in ({}, {"use_on_oom": True}):
        pool_registered(torch, distributed, backend, torch.cuda.MemPool(**settings))
        torch.cuda.empty_cache()
    distributed.destroy_process_group()


def check_nccl_memory():
    """registers MemPools of ncclMemAlloc() with NCCL while they grow and end"""
    torch, distributed, backend = nccl_start()
    allocator, why_not = checks.nccl_memory(backend)
    if allocator is not None:
        pool_registered(torch, distributed, backend, torch.cuda.MemPool(allocator))
        torch.cuda.empty_cache()
    distributed.destroy_process_group()
    if allocator is None:
        raise Skip(why_not)


def check_nccl_registration_of_all():
    """turns the registration of all memory with NCCL off, and says so"""
    import warnings
    name = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    os.environ[name] = "1"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch, distributed, _ = nccl_start()
    expect(any(name in str(one.message) for one in told), "there was no warning")
    x = torch.ones(8 * MIB, device="cuda")
    distributed.all_reduce(x)
    expect(x.sum().item() == 8 * MIB, "the sum is wrong")
    distributed.destroy_process_group()


if __name__ == "__main__":
    checks.main(__file__, checks.find(dict(globals())), ["native"], sys.argv[1:], alone=ALONE, jobs=6)
