#!/usr/bin/env python3
"""Checks the allocator class with what PyTorch's own tests are about, beside PyTorch's own allocator.

usage: own_check.py [--allocator native|vmmcache|both] [--jobs N] [CHECK or GROUP...]

Needs PyTorch and a GPU; written for PyTorch 2.11. Each check runs with both allocators, and its documentation names the
test of PyTorch that it follows. The first word of its name is its group, whose checks share a process; N processes run
at a time (6). Prints a line for each check and allocator: PASS, FAIL and why, or SKIP for what this PyTorch or machine
cannot do. A check that fails with PyTorch's allocator too is named at the end, and is no failure. The exit status is 1
if another check fails, and 77 where there is no PyTorch with CUDA or no GPU; with VMM_REQUIRE_GPU=1 that is a failure.
Set VMMCACHE_LIBRARY and PYTHONPATH as docs/pytorch.md says.
"""
import argparse
import contextlib
import gc
import inspect
import json
import os
import random
import subprocess
import sys
import tempfile
import threading

import checks
from checks import MIB, Skip, expect
from groups import Runner

KINDS = ["native", "vmmcache"]
ALONE = ("ipc", "fuzz")  # groups whose checks have a process each
WAIT_SECONDS = 120
SLEEP_CYCLES = 50_000_000  # some 30 ms on the device


def start():
    """Returns torch, with the allocator that this process is to use."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        os.environ.pop(name, None)
    import torch
    if checks.kind() == "vmmcache":
        import vmmcache
        if not vmmcache.is_installed():
            vmmcache.install(native=True)
    backend = torch.cuda.get_allocator_backend()
    expect(backend == checks.kind(), "the allocator is %s" % backend)
    return torch


def clean():
    """Before each check: drops what the last one has left."""
    torch = start()
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def need(scope, name):
    """A function of PyTorch that not every version has."""
    found = getattr(scope, name, None)
    if found is None:
        raise Skip("this PyTorch has no %s" % name)
    return found


def is_all(tensor, value):
    """Compares on the host, so that it needs no memory of the device."""
    return bool((tensor.detach().cpu() == value).all())


def filled(torch, value, size, dtype=None):
    return torch.full((size,), value, device="cuda", dtype=dtype or torch.float32)


def range_of(tensor):
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def expect_apart(tensors):
    places = sorted(range_of(tensor) for tensor in tensors)
    expect(all(left[1] <= right[0] for left, right in zip(places, places[1:])), "two live tensors overlap: %r" % places)


def lies_in(tensor, segments):
    address = tensor.data_ptr()
    return any(each["address"] <= address < each["address"] + each["total_size"] for each in segments)


def fails(torch, size):
    """Whether there is no memory for so many bytes."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return True
    return False


@contextlib.contextmanager
def limited(torch, size):
    """The process may have so many bytes beside those that it has, and 1 MiB, for a fraction is not exact."""
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + size + MIB) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def in_threads(count, function):
    """Runs function(number) in each of some threads at a time."""
    errors = []

    def run(number):
        try:
            function(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    expect(not any(thread.is_alive() for thread in threads), "a thread did not end")
    if errors:
        raise errors[0]


def captured(torch, step, pool=None, stream=None):
    """Runs a step once on a stream, then captures it there: the graph, and what the step returned."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        outputs = step()
    return graph, outputs


# ---- States of graph pools


class States:
    """The states of one pool of graphs, which share a stream."""

    def __init__(self, torch):
        self.torch, self.device = torch, torch.cuda.current_device()
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.get = need(torch._C, "_cuda_getCheckpointState")
        self.set = need(torch._C, "_cuda_setCheckpointPoolState")
        self.check = need(torch._C, "_cuda_checkPoolLiveAllocations")

    def capture(self, step):
        graph, outputs = captured(self.torch, step, self.pool, self.stream)
        graph.replay()
        self.torch.cuda.synchronize()
        return graph, outputs

    def take(self):
        return self.get(self.device, self.pool)

    def restore(self, state, stale=(), owners=()):
        """stale: tensors that lose their memory. owners: tensors without an owner that get one."""
        self.set(self.device, state, [each.untyped_storage()._cdata for each in stale],
                 [each.untyped_storage()._cdata for each in owners])

    def expect_live(self, addresses):
        """addresses, or tensors, are all that is live in the pool."""
        wanted = {each if isinstance(each, int) else each.data_ptr() for each in addresses}
        expect(self.check(self.device, self.pool, wanted), "the pool has other live blocks than %r" % wanted)

    @contextlib.contextmanager
    def used(self):
        """This thread allocates to the pool, on the stream of its graphs."""
        begin = need(self.torch._C, "_cuda_beginAllocateCurrentThreadToPool")
        self.stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(self.stream):
            begin(self.device, self.pool)
            try:
                yield
            finally:
                self.torch._C._cuda_endAllocateToPool(self.device, self.pool)
                self.torch._C._cuda_releasePool(self.device, self.pool)
        self.torch.cuda.current_stream().wait_stream(self.stream)

    def expect_kept(self, kept):
        """New tensors in the pool neither overlap nor change [(tensor, value)]."""
        with self.used():
            new = [filled(self.torch, 99.0, size) for size in (100, 1000, 70000, MIB // 4, 3 * MIB, 6 * MIB) * 3]
        self.torch.cuda.synchronize()
        expect_apart(new + [tensor for tensor, _ in kept])
        for tensor, value in kept:
            expect(is_all(tensor, value), "a live tensor has changed")


def state_steps(torch):
    """{name: a step that returns [(tensor, value)]}; most of its tensors are freed on the way."""
    def ones(size):
        return filled(torch, 1.0, size)

    def sums():
        x = ones(2 * MIB)
        x = x + x
        y = ones(MIB // 4) + ones(MIB // 4) + ones(MIB // 4)
        return [(x, 2.0), (ones(MIB // 4) + y, 4.0), (ones(MIB // 4), 1.0)]

    def middle(*kept):
        small = [ones(128) for _ in range(11)]
        return [(small[number].add_(number), 1.0 + number) for number in kept]

    def large():
        parts = [ones(size * MIB) for size in (3, 1, 5, 2)]
        return [(parts[1] * 3, 3.0), (parts[2], 1.0)]

    return {"sums": sums, "one in the middle": lambda: middle(5), "two in the middle": lambda: middle(5, 8),
            "two neighbours": lambda: middle(5, 6), "large": large}


def check_states_restore():
    """restores the state of a pool whose tensors live (test_simple, test_multiple_middle_allocations and others)"""
    torch = start()
    for name, step in state_steps(torch).items():
        states = States(torch)
        graph, outputs = states.capture(step)
        places = [tensor.data_ptr() for tensor, _ in outputs]
        states.expect_live(places)
        for _ in range(3):
            states.restore(states.take())
            states.expect_live(places)
            states.expect_kept(outputs)
            states.expect_live(places)
        graph.replay()
        for tensor, value in outputs:
            expect(is_all(tensor, value), "%s: a replay computes something else" % name)
        del outputs, tensor
        states.expect_live([])


def check_states_freed():
    """restores a state after another capture, whose tensors end (test_additional_free_following_checkpoint)"""
    torch = start()
    states = States(torch)
    first, kept = states.capture(lambda: filled(torch, 1.0, 128) + 1)
    state = states.take()
    for _ in range(3):
        second, stale = states.capture(lambda: [filled(torch, 3.0, size) for size in (128, MIB, 6 * MIB)])
        states.expect_live([kept] + stale)
        expect_apart([kept] + stale)
        states.restore(state, stale)
        del stale, second
        states.expect_live([kept])
        states.expect_kept([(kept, 2.0)])
    first.replay()
    expect(is_all(kept, 2.0), "a replay computes something else")


def check_states_dead():
    """restores blocks whose tensors have ended, and frees them by address (test_tensor_dies_after_checkpoint)"""
    torch = start()
    states = States(torch)
    delete = need(torch._C, "_cuda_cudaCachingAllocator_raw_delete")
    _, outputs = states.capture(lambda: [filled(torch, 1.0, 128), filled(torch, 2.0, 128), filled(torch, 3.0, 5 * MIB)])
    state, places = states.take(), [each.data_ptr() for each in outputs]
    del outputs
    states.expect_live([])
    states.restore(state)
    for number, place in enumerate(places):
        states.expect_live(places[number:])
        delete(place)
    states.expect_live([])


def metadata_of(tensor):
    return tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.shape, tensor.stride(), tensor.dtype


def tensor_at(torch, metadata):
    """A tensor over memory that it does not own."""
    place, size, shape, strides, dtype = metadata
    make = need(torch._C, "_construct_storage_from_data_pointer")
    storage = make(place, torch.device("cuda", torch.cuda.current_device()), size)
    return torch.empty([0], device="cuda", dtype=dtype).set_(storage, 0, shape, strides)


def check_states_owners():
    """gives tensors the memory of a restored state (test_assigning_back_deleter_fns_to_tensor)"""
    torch = start()
    states, base = States(torch), torch.ones(1, device="cuda")
    graph, outputs = states.capture(lambda: [filled(torch, 1.0, size * MIB) + base for size in (1, 1, 5)])
    state, kept = states.take(), [metadata_of(each) for each in outputs]
    del outputs
    states.expect_live([])
    again = [tensor_at(torch, each) for each in kept]
    places = [each[0] for each in kept]
    for value in (2.0, 3.0):
        base.fill_(value - 1)
        graph.replay()
        expect(all(is_all(each, value) for each in again), "a replay after its tensors ended computes something else")
    states.restore(state, (), again[:2])
    is_owner = need(torch._C, "_has_Standard_Deleter")
    owners = [is_owner(each.untyped_storage()._cdata) for each in again]
    expect(owners == [True, True, False], "owners are %r" % owners)
    for number, left in enumerate((places[1:], places[2:], places[2:])):
        again[number] = None
        states.expect_live(left)
    torch._C._cuda_cudaCachingAllocator_raw_delete(places[2])
    states.expect_live([])


def check_states_branches():
    """walks between graphs that follow the same one, as graph trees do (inductor/test_cudagraph_trees.py)"""
    torch = start()
    states, base = States(torch), torch.ones(MIB, device="cuda")
    root, a = states.capture(lambda: base * 2)
    state_a = states.take()
    left, b = states.capture(lambda: (a + 1) * 3)
    state_b, place_b = states.take(), metadata_of(b)
    states.restore(state_a, [b])
    del b
    right, c = states.capture(lambda: [a * 5, a - 1])
    expect_apart([a] + c)
    for value in (2.0, 3.0):
        base.fill_(value)
        root.replay()
        right.replay()
        expect(is_all(c[0], value * 10) and is_all(c[1], value * 2 - 1), "the right branch computes something else")
        expect(is_all(a, value * 2), "the right branch has changed the output of the root")
    states.restore(state_a, c)
    del c
    root.replay()
    left.replay()
    b = tensor_at(torch, place_b)
    states.restore(state_b, (), [b])
    states.expect_live([a, b])
    states.expect_kept([(a, 6.0), (b, 21.0)])
    del b
    states.expect_live([a])


def check_states_live():
    """tells which blocks of a pool are live (test_check_pool_live_allocations)"""
    torch = start()
    states = States(torch)
    _, x = states.capture(lambda: torch.ones(4, device="cuda"))
    place = x.data_ptr()
    states.expect_live([place])
    for wrong in ({place, 0}, {place + 512}, set()):
        expect(not states.check(states.device, states.pool, wrong), "%r are live" % wrong)
    del x
    states.expect_live([])
    expect(not states.check(states.device, states.pool, {place}), "a freed block is live")


def check_states_thread():
    """allocates to a pool in one thread, not in another (test_allocate_in_thread_to_pool)"""
    torch = start()
    states = States(torch)
    graph, x = states.capture(lambda: torch.ones(4, device="cuda"))
    del x
    inside, outside, barrier = [], [], threading.Barrier(2)

    def segments():
        return [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) == tuple(states.pool)]

    def work(number):
        with states.used() if number == 0 else contextlib.nullcontext():
            barrier.wait(WAIT_SECONDS)
            for round_ in range(30):
                (inside, outside)[number].append(filled(torch, float(round_), MIB if round_ % 10 == 0 else 1000))
            barrier.wait(WAIT_SECONDS)
        outside.append(filled(torch, 1.0, MIB))
        torch.cuda.synchronize()

    in_threads(2, work)
    expect(all(lies_in(each, segments()) for each in inside), "a tensor is not in the pool")
    expect(not any(lies_in(each, segments()) for each in outside), "a tensor of the other thread is in the pool")
    expect(all(is_all(each, float(number)) for number, each in enumerate(inside)), "contents are wrong")
    expect_apart(inside + outside)
    del inside[:], outside[:], graph
    gc.collect()
    torch.cuda.empty_cache()
    expect(not segments(), "the pool has memory after its end")


# ---- torch.cuda.MemPool


def check_mempool_nested():
    """allocates in nested pools (test_nested_mempool)"""
    torch = start()
    pools, found = [torch.cuda.MemPool() for _ in range(3)], [[], [], []]

    def enter(depth):
        with torch.cuda.use_mem_pool(pools[depth]):
            found[depth].append(filled(torch, float(depth), 5 * MIB))
            if depth < 2:
                enter(depth + 1)
            found[depth].append(filled(torch, float(depth), 1000))

    enter(0)
    outside = filled(torch, 9.0, MIB)
    for depth, pool in enumerate(pools):
        for other, tensors in enumerate(found):
            expect(all(lies_in(each, pool.snapshot()) == (other == depth) for each in tensors),
                   "tensors of depth %d and the pool of depth %d" % (other, depth))
        expect(all(is_all(each, float(depth)) for each in found[depth]), "contents are wrong")
        expect(not lies_in(outside, pool.snapshot()), "a tensor behind the contexts lies in a pool")
    expect_apart(sum(found, [outside]))


def check_mempool_ids():
    """gives pools of all threads ids of their own (test_mempool_id, test_mempool_multithread)"""
    torch = start()
    pools = []

    def make(_):
        for _ in range(50):
            pools.append(torch.cuda.MemPool())

    in_threads(4, make)
    ids = [tuple(pool.id) for pool in pools] + [tuple(torch.cuda.graph_pool_handle()) for _ in range(10)]
    expect(len(set(ids)) == len(ids) == 210 and (0, 0) not in ids, "%d ids of %d pools" % (len(set(ids)), len(ids)))


def check_mempool_threads():
    """uses a pool in each thread, and none in another (test_mempool_ctx_multithread)"""
    torch = start()
    count = 4
    pools, found, barrier = [torch.cuda.MemPool() for _ in range(count)], {}, threading.Barrier(count + 1)

    def work(number):
        context = torch.cuda.use_mem_pool(pools[number]) if number < count else contextlib.nullcontext()
        with context, torch.cuda.stream(torch.cuda.Stream()):
            barrier.wait(WAIT_SECONDS)
            for round_ in range(40):
                filled(torch, -1.0, MIB)
                found.setdefault(number, []).append(filled(torch, number * 100.0 + round_, 1000 * (round_ + 1)))
            torch.cuda.synchronize()
            barrier.wait(WAIT_SECONDS)

    in_threads(count + 1, work)
    for number, tensors in found.items():
        expect(all(is_all(each, number * 100.0 + round_) for round_, each in enumerate(tensors)), "contents are wrong")
        for owner, pool in enumerate(pools):
            segments = pool.snapshot()
            expect(all(lies_in(each, segments) == (owner == number) for each in tensors),
                   "tensors of thread %d and the pool of thread %d" % (number, owner))
    expect_apart(sum(found.values(), []))


def check_mempool_deleted():
    """does not lend the memory of a pool that has ended (test_deleted_mempool_not_used_on_oom)"""
    torch = start()
    with limited(torch, 40 * MIB):
        for _ in range(10):
            pool = torch.cuda.MemPool(use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                filled(torch, 0.0, 10 * MIB)
            del pool
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            filled(torch, 0.0, 10 * MIB)
        taken = [filled(torch, value, 5 * MIB) for value in (1.0, 2.0)]
        expect_apart(taken)
        expect(is_all(taken[0], 1.0) and is_all(taken[1], 2.0), "contents are wrong")
        expect(fails(torch, 20 * MIB), "the limit is exceeded")


def check_mempool_outlives():
    """keeps tensors that outlive their pool (test_mempool_empty_cache_inactive)"""
    torch = start()
    reserved, kept = torch.cuda.memory_reserved(), []
    for value in range(5):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept += [filled(torch, float(value), size) for size in (100, MIB, 7 * MIB)]
            filled(torch, -1.0, 7 * MIB)
        del pool
        gc.collect()
        torch.cuda.empty_cache()
    noise = [filled(torch, -2.0, size) for size in (100, MIB, 7 * MIB) * 5]
    expect_apart(kept + noise)
    expect(all(is_all(each, float(number // 3)) for number, each in enumerate(kept)), "contents have changed")
    del kept, noise
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_reserved() <= reserved, "%d bytes stay reserved, %d before" % (
        torch.cuda.memory_reserved(), reserved))


def check_mempool_empty():
    """empties the cache in threads that use pools (test_mempool_emptycache_multithread)"""
    torch = start()
    pools, kept = [torch.cuda.MemPool() for _ in range(4)], {}

    def work(number):
        with torch.cuda.use_mem_pool(pools[number]):
            for round_ in range(25):
                filled(torch, -1.0, 2 * MIB)
                kept[number, round_] = filled(torch, number * 100.0 + round_, 30000)
                torch.cuda.empty_cache()
        torch.cuda.synchronize()

    in_threads(4, work)
    expect_apart(kept.values())
    for (number, round_), each in kept.items():
        expect(is_all(each, number * 100.0 + round_), "contents have changed")
        expect(lies_in(each, pools[number].snapshot()), "a tensor is not in its pool")


def check_mempool_limited():
    """lends memory of one pool, not of another, at the limit (test_mempool_limited_memory_with_allocator)"""
    torch = start()
    own, lends = torch.cuda.MemPool(), torch.cuda.MemPool(use_on_oom=True)
    with limited(torch, 80 * MIB):
        for pool in (own, lends):
            with torch.cuda.use_mem_pool(pool):
                x = filled(torch, 1.0, 10 * MIB)
            if pool is own:
                y = x
        expect_apart([x, y])
        expect(fails(torch, 40 * MIB), "the limit is exceeded")
        del x, y
        taken = filled(torch, 2.0, 30 * MIB // 4)
        expect(fails(torch, 30 * MIB), "the memory of the pool that does not lend was given away")
        expect(is_all(taken, 2.0), "contents are wrong")
        del taken
        with torch.cuda.use_mem_pool(lends):
            expect(is_all(filled(torch, 3.0, 5 * MIB), 3.0), "contents are wrong")
        with torch.cuda.use_mem_pool(own):
            expect(is_all(filled(torch, 4.0, 10 * MIB), 4.0), "contents are wrong")


def check_mempool_whole():
    """uses freed blocks of a pool with no_split whole (test_mempool_no_split)"""
    torch = start()
    try:
        pool = torch.cuda.MemPool(no_split=True)
    except TypeError:
        raise Skip("this PyTorch has no no_split") from None
    with torch.cuda.use_mem_pool(pool):
        kept = [filled(torch, float(number), MIB) for number in range(6)]
        expect_apart(kept)
        places = {each.data_ptr() for each in kept}
        expect(all(is_all(each, float(number)) for number, each in enumerate(kept)), "contents are wrong")
        del kept
        again = {filled(torch, 0.0, MIB).data_ptr() for _ in range(6)}
    expect(again <= places, "freed blocks of the same size were not used again")


# ---- Graphs


def check_graphs_three():
    """drops results between three graphs that share a pool (test_graph_three_successive)"""
    torch = start()
    x, stream, pool = torch.ones(MIB, device="cuda"), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    first, (a, b) = captured(torch, lambda: (x * 2, x * 3), pool, stream)
    second, c = captured(torch, lambda: a + b, pool, stream)
    del b
    third, d = captured(torch, lambda: [a * c + part for part in range(3)], pool, stream)
    expect_apart([a, c] + d)
    for value in range(8):
        x.fill_(value)
        noise = filled(torch, -1.0, 4 * MIB)
        for graph in (first, second, third):
            graph.replay()
        for part in range(3):
            expect(is_all(d[part], float(10 * value * value + part)), "value %d, part %d is wrong" % (value, part))
        expect(is_all(a, 2.0 * value) and is_all(c, 5.0 * value), "a result that was kept is wrong")
        del noise


def check_graphs_concurrent():
    """replays two graphs on two streams at a time (test_graph_concurrent_replay)"""
    torch = start()
    x, count = torch.zeros(2, MIB, device="cuda"), 20

    def step(row):
        y = x[row]
        for _ in range(count):
            y = y * 1.0 + 1
        return y

    graphs = [captured(torch, lambda row=row: step(row)) for row in range(2)]
    streams = [torch.cuda.Stream() for _ in graphs]
    for value in range(10):
        x[0].fill_(value)
        x[1].fill_(-value)
        torch.cuda.synchronize()
        for stream, (graph, _) in zip(streams, graphs):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(SLEEP_CYCLES // 50)
                graph.replay()
        torch.cuda.synchronize()
        expect(is_all(graphs[0][1], value + count) and is_all(graphs[1][1], count - value), "value %d" % value)


def check_graphs_forked():
    """captures work on a second stream, whose tensors are freed (test_graph_record_stream)"""
    torch = start()
    x, other = torch.ones(MIB, device="cuda"), torch.cuda.Stream()

    def step():
        y = x * 2
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            z = (y + 1) * 3
        y.record_stream(other)
        del y
        w = filled(torch, 5.0, MIB) + x  # must not take the memory of y yet
        torch.cuda.current_stream().wait_stream(other)
        z.record_stream(torch.cuda.current_stream())
        return z + w

    graph, total = captured(torch, step)
    for value in range(5):
        x.fill_(value)
        graph.replay()
        expect(is_all(total, (2.0 * value + 1) * 3 + 5 + value), "value %d" % value)


def check_graphs_oom():
    """goes on after a capture that ran out of memory (test_graph_capture_oom)"""
    torch = start()
    kept = filled(torch, 7.0, MIB)
    for _ in range(3):
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                part = filled(torch, 1.0, MIB) + kept
                torch.zeros(1 << 40, device="cuda")
            raise AssertionError("4 TiB were allocated")
        except RuntimeError as error:
            expect("out of memory" in str(error), str(error))
        part = None
        gc.collect()
        graph, y = captured(torch, lambda: kept + 1)
        graph.replay()
        expect(is_all(y, 8.0) and is_all(kept, 7.0), "a capture after the failed one is wrong")
    expect(is_all(filled(torch, 3.0, MIB), 3.0), "contents are wrong")


def check_graphs_destroyed():
    """keeps results after their graph, and counts (test_graph_memory_stats_and_use_result_after_destroy_graph)"""
    torch = start()
    stream = torch.cuda.Stream()
    _, x = captured(torch, lambda: filled(torch, 0.0, MIB), None, stream)  # what a first capture leaves
    x = _ = None
    for size in (1000, MIB // 4, 8 * MIB):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_stats()
        graph, x = captured(torch, lambda size=size: filled(torch, 1.0, size) + filled(torch, 2.0, size), None, stream)
        during = torch.cuda.memory_stats()
        grown = during["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
        expect(x.nbytes <= grown <= x.nbytes + MIB // 4, "%d bytes more for %d" % (grown, x.nbytes))
        graph.replay()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        noise = [filled(torch, -1.0, size) for _ in range(4)]
        expect_apart(noise + [x])
        expect(is_all(x, 3.0), "the result has changed")
        del noise, x
        torch.cuda.empty_cache()
        after = torch.cuda.memory_stats()
        for key in ("allocated_bytes.all.current", "reserved_bytes.all.current", "allocation.all.current"):
            expect(after.get(key, 0) <= before.get(key, 0), "%s: %d, then %d" % (key, before.get(key, 0), after[key]))


def check_graphs_dropout():
    """draws the random numbers of eager code in a graph (test_graph_rng_functional)"""
    torch = start()
    x = torch.ones(MIB, device="cuda")
    graph, y = captured(torch, lambda: torch.nn.functional.dropout(x, p=0.3))

    def replayed():
        graph.replay()
        return y.clone()

    def drawn(step):
        torch.cuda.manual_seed(5)
        return [step() for _ in range(4)]

    first, second = drawn(replayed), drawn(replayed)
    eager = drawn(lambda: torch.nn.functional.dropout(x, p=0.3))
    for number in range(4):
        expect(torch.equal(first[number], second[number]), "replay %d differs for the same seed" % number)
        expect(torch.equal(first[number], eager[number]), "replay %d differs from eager code" % number)
    expect(not torch.equal(first[0], first[1]), "two replays draw the same numbers")
    share = (first[0] == 0).float().mean().item()
    expect(0.28 < share < 0.32, "%g of the values are dropped" % share)


def check_graphs_scaler():
    """scales the gradients of a captured step (test_graph_grad_scaling)"""
    torch = start()
    scaler = torch.amp.GradScaler(device="cuda", init_scale=4.0)
    weight = torch.ones(100, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    data, stream = torch.ones_like(weight), torch.cuda.Stream()

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale((weight.half() * data).sum()).backward()

    graph, _ = captured(torch, step, None, stream)
    infinite = float("inf")
    for value, gradient, scale in ((5, 20.0, 4.0), (20000, infinite, 2.0), (5, 10.0, 2.0), (40000, infinite, 1.0)):
        data.fill_(value)
        graph.replay()
        expect(is_all(weight.grad, gradient), "gradients are %r" % weight.grad[:3].tolist())
        scaler.step(optimizer)
        scaler.update()
        expect(scaler.get_scale() == scale, "the scale is %g" % scaler.get_scale())
    wanted = 1 - 0.1 * 5 * 2
    expect(bool(((weight - wanted).abs() < 1e-5).all()), "weights are %r" % weight[:3].tolist())


def check_graphs_workspaces():
    """does not grow with repeated captures (test_repeat_graph_capture_cublas_workspace_memory)"""
    torch = start()
    a, b = torch.rand(1024, 512, device="cuda"), torch.rand(512, 64, device="cuda")
    reserved = []
    torch.mm(a, b)
    for number in range(30):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = torch.mm(a, b)
        graph.replay()
        if number % 10 == 9:
            expect(torch.allclose(c, torch.mm(a, b), rtol=1e-3, atol=1e-3), "the product is wrong")
            reserved.append(torch.cuda.memory_reserved())
        del c, graph
    expect(reserved[-1] <= reserved[0] + 16 * MIB, "reserved bytes: %r" % reserved)
    return "%d MiB reserved" % (reserved[-1] // MIB)


# ---- Memory and statistics


def check_memory_pointers():
    """allocates without tensors (caching_allocator_alloc() in test_cuda.py)"""
    torch = start()
    before, pointers = torch.cuda.memory_allocated(), []
    for size in (512, MIB, 30 * MIB):
        pointers.append(torch.cuda.caching_allocator_alloc(size))
        pointers.append(torch.cuda.caching_allocator_alloc(size, stream=torch.cuda.Stream()))
    wanted = before + 2 * (512 + MIB + 30 * MIB)
    expect(torch.cuda.memory_allocated() == wanted, "%d bytes, not %d" % (torch.cuda.memory_allocated(), wanted))
    expect(all(pointers) and len(set(pointers)) == 6, "pointers are %r" % pointers)
    for pointer in pointers:
        torch.cuda.caching_allocator_delete(pointer)
    expect(torch.cuda.memory_allocated() == before, "%d bytes are left" % torch.cuda.memory_allocated())


def check_memory_raw_off():
    """takes no cached memory for a raw allocation while caching is off (test_cachingAllocator_raw_alloc)"""
    torch = start()
    take = need(torch._C, "_cuda_cudaCachingAllocator_raw_alloc")
    give = need(torch._C, "_cuda_cudaCachingAllocator_raw_delete")
    stream = torch.cuda.current_stream().cuda_stream

    def requested():
        before = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
        pointer = take(MIB, stream)
        grown = torch.cuda.memory_stats()["requested_bytes.all.allocated"] - before
        give(pointer)
        return grown

    torch.zeros(1, device="cuda")
    torch.cuda.caching_allocator_enable(False)
    try:
        off = requested()
    finally:
        torch.cuda.caching_allocator_enable(True)
    on = requested()
    expect(on == MIB, "%d bytes are requested while caching is on" % on)
    expect(off == 0, "%d bytes are requested while caching is off" % off)


def check_memory_counts():
    """counts bytes and their peaks (test_memory_allocation, test_memory_stats)"""
    torch = start()
    base, kept, live = torch.cuda.memory_allocated(), [], 0
    torch.cuda.reset_peak_memory_stats()
    for size in (512, 4096, MIB, 3 * MIB, 17 * MIB, 64 * MIB):
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        live += size
        expect(torch.cuda.memory_allocated() == base + live, "%d bytes" % torch.cuda.memory_allocated())
        expect(torch.cuda.max_memory_allocated() == base + live, "the peak is %d" % torch.cuda.max_memory_allocated())
        expect(torch.cuda.memory_reserved() >= torch.cuda.memory_allocated(), "less is reserved than allocated")
    del kept[2:]
    expect(torch.cuda.memory_allocated() == base + 4608, "%d bytes" % torch.cuda.memory_allocated())
    expect(torch.cuda.max_memory_allocated() == base + live, "the peak fell")
    peak = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    expect(torch.cuda.max_memory_reserved() == peak, "the peak of reserved memory fell")
    expect(torch.cuda.memory_reserved() < peak, "nothing was released")
    torch.cuda.reset_peak_memory_stats()
    expect(torch.cuda.max_memory_allocated() == base + 4608, "the peak stays at a reset")
    expect(torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved(), "the peak of reserved memory stays")


STATS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment", "active",
         "inactive_split", "inactive_split_bytes")


def check_memory_stats():
    """has statistics that agree with each other (check_memory_consistency of test_cuda.py)"""
    torch = start()
    noise, kept, first = random.Random(3), [], None
    for step in range(200):
        if kept and noise.random() < 0.45:
            kept.pop(noise.randrange(len(kept)))
        else:
            kept.append(torch.empty(int(2 ** noise.uniform(9, 25)), dtype=torch.uint8, device="cuda"))
        if step % 50 == 30:
            torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats()
        first = first or stats
        for name in STATS:
            for word in ("current", "peak", "allocated", "freed"):
                parts = [stats["%s.%s_pool.%s" % (name, pool, word)] for pool in ("small", "large")]
                expect(word == "peak" or sum(parts) == stats["%s.all.%s" % (name, word)],
                       "step %d: %s.%s is not the sum of its parts" % (step, name, word))
            now, then = ([each["%s.all.%s" % (name, word)] for word in ("current", "peak", "allocated", "freed")]
                         for each in (stats, first))
            expect(0 <= now[0] <= now[1], "step %d: %s is %d, its peak %d" % (step, name, now[0], now[1]))
            expect(now[0] - then[0] == now[2] - now[3] - then[2] + then[3], "step %d: %s: %r" % (step, name, now))
        expect(stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated(), "memory_allocated() differs")
        expect(stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved(), "memory_reserved() differs")
        grown = stats["allocation.all.current"] - first["allocation.all.current"] + 1
        expect(grown == len(kept), "step %d: %d allocations, %d tensors" % (step, grown, len(kept)))
    nested = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
    expect(nested == torch.cuda.memory_allocated(), "the nested statistics differ")
    expect("Allocated memory" in torch.cuda.memory_summary(), "the summary is empty")


def check_memory_exabyte():
    """refuses more than 1 EB, and goes on (test_out_of_memory)"""
    torch = start()
    kept = torch.zeros(1024, device="cuda")
    for size in (1 << 40, 8 * 10**8 << 30):
        expect(fails(torch, size), "%d bytes were allocated" % size)
    try:
        torch.empty(8 * 10**9 << 30, dtype=torch.int8, device="cuda")
        raise AssertionError("8 EB were allocated")
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        told = "%s: %s" % (type(error).__name__, str(error).splitlines()[0])
    kept.fill_(1)
    expect(is_all(kept, 1), "a kernel after that does nothing")
    return told


def check_memory_fraction():
    """obeys a fraction of memory (test_set_per_process_memory_fraction, test_get_per_process_memory_fraction)"""
    torch = start()
    choose = torch.cuda.set_per_process_memory_fraction
    for wrong in (-0.1, 2.0, 1):
        try:
            choose(wrong)
        except (TypeError, ValueError):
            continue
        expect(wrong == 1, "a fraction of %r is taken" % wrong)
    share = 0.02
    size = int(torch.cuda.mem_get_info()[1] * share)
    choose(share)
    try:
        if hasattr(torch.cuda.memory, "get_per_process_memory_fraction"):
            now = torch.cuda.memory.get_per_process_memory_fraction()
            expect(abs(now - share) < 1e-6, "the fraction is %r" % now)
        for _ in range(3):
            below = size - torch.cuda.memory_reserved() - 8 * MIB
            torch.empty(below, dtype=torch.uint8, device="cuda")
            torch.cuda.empty_cache()
            expect(fails(torch, size + 2 * MIB), "more than the fraction is allocated")
    finally:
        choose(1.0)
    torch.empty(size + 2 * MIB, dtype=torch.uint8, device="cuda")


def check_memory_retry():
    """finds memory again after it ran out (test_out_of_memory_retry)"""
    torch = start()
    with limited(torch, 256 * MIB):
        first = filled(torch, 1.0, 36 * MIB)
        expect(fails(torch, 144 * MIB), "the limit is exceeded")
        expect(is_all(first, 1.0), "contents have changed")
        del first
        expect(not fails(torch, 144 * MIB), "freed memory is not found")
        torch.cuda.empty_cache()
        expect(not fails(torch, 200 * MIB), "emptied memory is not found")
        torch.cuda.empty_cache()
        parts = [filled(torch, 1.0, 4 * MIB) for _ in range(14)]
        kept = parts[0]
        del parts
        expect(not fails(torch, 220 * MIB), "the memory of 13 freed tensors does not serve a large one")
        expect(is_all(kept, 1.0), "contents have changed")


# ---- Random operations


def check_fuzz_operations():
    """allocates and frees 10 000 times on two streams, and checks contents (test_allocator_fuzz)"""
    torch = start()
    noise, live, total = random.Random(11), [], 0
    streams = [torch.cuda.Stream() for _ in range(2)]
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    torch.cuda.synchronize()

    def check(tensor, value, number):
        with torch.cuda.stream(streams[number]):
            wrong[number].add_((tensor != value).sum())

    for step in range(10000):
        while total > 512 * MIB or (live and noise.random() < 0.48):
            tensor, value, number = live.pop(noise.randrange(len(live)))
            total -= tensor.nbytes
            check(tensor, value, number)
            if noise.random() < 0.2:  # the other stream reads it too
                streams[1 - number].wait_stream(streams[number])
                check(tensor, value, 1 - number)
                tensor.record_stream(streams[1 - number])
            del tensor
        number = noise.randrange(2)
        with torch.cuda.stream(streams[number]):
            live.append((filled(torch, step, int(2 ** noise.uniform(0, 22.3)), torch.int32), step, number))
        total += live[-1][0].nbytes
        if noise.random() < 0.004:
            torch.cuda.empty_cache()
        if step % 500 == 0:
            expect_apart([each[0] for each in live])
    for each in live:
        check(*each)
    torch.cuda.synchronize()
    count = sum(each.item() for each in wrong)
    expect(count == 0, "%d values are wrong" % count)
    return "%d tensors at the end" % len(live)


# ---- History and snapshots


@contextlib.contextmanager
def recorded(torch, **settings):
    """Records history, from nothing."""
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(**settings)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(None)


def has_setting(torch, name):
    function = getattr(torch.cuda.memory, "_record_memory_history_impl", torch.cuda.memory._record_memory_history)
    return name in inspect.signature(function).parameters


def events_of(torch):
    return torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]


def made_first(torch):
    return torch.ones(1111, device="cuda")


def made_second(torch):
    return torch.ones(2222, device="cuda")


def made_hidden(torch):
    return torch.ones(3333, device="cuda")


def check_history_keeps():
    """keeps events when the recording of stacks changes (test_memory_plots_history_context)"""
    torch = start()
    with recorded(torch, context="alloc", stacks="python"):
        kept = [made_first(torch)]
        torch.cuda.memory._record_memory_history(context="all", stacks="python")
        kept.append(made_second(torch))
        text = json.dumps(events_of(torch))
        expect("made_second" in text, "the second allocation has no stack")
        expect("made_first" in text, "the first recording is lost")
        torch.cuda.memory._record_memory_history(context=None)
        kept.append(made_hidden(torch))
        text = json.dumps(events_of(torch))
        expect("made_first" in text and "made_second" in text, "a recording without stacks drops the others")
        expect("made_hidden" not in text, "a stack was recorded")
        sizes = [event["size"] for event in events_of(torch) if event["action"] == "alloc"]
        expect(len(sizes) == len(kept), "%d allocations in the history" % len(sizes))


def check_history_clear():
    """drops events on demand (clear_history of _record_memory_history)"""
    torch = start()
    if not has_setting(torch, "clear_history"):
        raise Skip("this PyTorch has no clear_history")
    with recorded(torch, context="all", stacks="python"):
        kept = [made_first(torch)]
        torch.cuda.memory._record_memory_history(context="all", stacks="python", clear_history=True)
        kept.append(made_second(torch))
        names = json.dumps(events_of(torch))
        expect("made_second" in names and "made_first" not in names, "old events are left, or new ones missing")


def check_history_frees():
    """has stacks of what is released with context='all' only (test_memory_plots_free_segment_stack)"""
    torch = start()
    for context in ("alloc", "all", "state"):
        torch.cuda.empty_cache()
        with recorded(torch, context=context, stacks="python"):
            made_first(torch)
            torch.cuda.empty_cache()
            text = json.dumps(torch.cuda.memory._snapshot())
        expect(("empty_cache" in text) == (context == "all"), "context %r: %d" % (context, "empty_cache" in text))


def check_history_skips():
    """leaves actions out (test_memory_snapshot_skip_actions)"""
    torch = start()
    if not has_setting(torch, "skip_actions"):
        raise Skip("this PyTorch has no skip_actions")
    for skipped in (["free_requested"], ["free_requested", "free_completed"], ["alloc"],
                    ["segment_alloc", "segment_free", "segment_map", "segment_unmap"], [], None):
        torch.cuda.empty_cache()
        with recorded(torch, context="all", stacks="python", skip_actions=skipped):
            made_first(torch)
            torch.cuda.synchronize()
            actions = {event["action"] for event in events_of(torch)}
        wanted = {"alloc", "free_requested", "free_completed"} - set(skipped or ())
        expect(wanted <= actions and not actions & set(skipped or ()), "without %r: %r" % (skipped, actions))


def check_history_metadata():
    """notes a text with each event (test_memory_plots_metadata)"""
    torch = start()
    note = need(torch.cuda.memory, "_set_memory_metadata")
    for context in ("alloc", "all", "state"):
        note("a note")
        try:
            with recorded(torch, context=context):
                made_first(torch)
                torch.cuda.empty_cache()
                events = events_of(torch)
        finally:
            note("")
        expect(events, "there are no events")
        expect(all(event.get("user_metadata") == "a note" for event in events),
               "context %r: %r" % (context, [event.get("user_metadata") for event in events]))


def check_history_pictures():
    """makes snapshots that PyTorch's pictures and tables take (test_memory_plots, test_memory_snapshot)"""
    torch = start()
    from torch.cuda import _memory_viz as viz
    with recorded(torch, context="all", stacks="python"):
        kept = [filled(torch, 1.0, size) for size in (100, 1000, MIB, 6 * MIB, 12 * MIB)]
        before = torch.cuda.memory._snapshot()
        del kept[1::2]
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept.append(made_second(torch))
        expect(fails(torch, 1 << 50), "a PiB was allocated")
        snapshot = torch.cuda.memory._snapshot()
    for name, text in (
            ("trace_plot", viz.trace_plot(snapshot)), ("segment_plot", viz.segment_plot(snapshot)),
            ("segsum", viz.segsum(snapshot)), ("trace", viz.trace(snapshot)),
            ("segments", viz.segments(snapshot, lambda lines: lines)),
            ("memory", viz.memory(snapshot, lambda lines: lines)),
            ("compare", viz.compare(before["segments"], snapshot["segments"], lambda lines: lines))):
        expect(isinstance(text, str) and (text or name == "compare"), "%s() returns %r" % (name, text))
    expect("made_second" in viz.memory(snapshot, lambda lines: lines), "memory() has no stacks")
    expect("OutOfMemoryError" in viz.trace(snapshot), "trace() does not show the error")
    expect(all(sum(block["size"] for block in each["blocks"]) == each["total_size"] for each in snapshot["segments"]),
           "the blocks of a segment have another size than the segment")


def check_history_command():
    """dumps a snapshot that `python -m torch.cuda._memory_viz` opens (test_memory_snapshot)"""
    torch = start()
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "snapshot.pickle"), os.path.join(folder, "page.html")
        with recorded(torch, context="all", stacks="python"):
            kept = made_first(torch)
            torch.cuda.memory._dump_snapshot(path)
        done = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", path, "-o", page],
                              text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        expect(done.returncode == 0, done.stdout[-300:])
        expect(os.path.getsize(page) > 1000 and kept is not None, "the page is empty")


def check_history_profile():
    """makes a picture of a profile (test_memory_profiler_viz)"""
    torch = start()
    from torch.cuda import _memory_viz as viz
    from torch.profiler import profile
    with profile(with_stack=True, profile_memory=True, record_shapes=True) as found:
        x = torch.rand(128, 128, device="cuda")
        (x * x + x * x).sum().item()
    text = need(viz, "profile_plot")(found)
    expect(len(text) > 1000, "the picture has %d letters" % len(text))


# ---- Processes


def spawned(torch, function, *arguments):
    """Starts a process with function(to it, from it, ...): the process and the two queues."""
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=function, args=(there, back, *arguments), daemon=True)
    child.start()
    return child, there, back


def ended(child, there):
    there.put(None)
    child.join(WAIT_SECONDS)
    expect(child.exitcode == 0, "the other process ended with %r" % child.exitcode)


def mixed(torch, number):
    """A tensor of one of nine types, whose values are known."""
    types = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16,
             torch.int32, torch.int64)
    return torch.full((number % 13 + 1, 7), number % 100, device="cuda", dtype=types[number % len(types)])


def ipc_mixed(there, back):
    torch = start()
    for number, tensor in iter(there.get, None):
        wanted = mixed(torch, number)
        is_right = tensor.dtype == wanted.dtype and torch.equal(tensor, wanted)
        tensor.add_(1)
        torch.cuda.synchronize()
        back.put((number, is_right, tensor.clone()))


def check_ipc_mixed():
    """sends tensors of nine types (test_mixed_types_cuda_sharing, test_cuda_send_many)"""
    torch = start()
    child, there, back = spawned(torch, ipc_mixed)
    for _ in range(4):
        sent = {number: mixed(torch, number) for number in range(90)}
        torch.cuda.synchronize()
        for item in sent.items():
            there.put(item)
        for _ in sent:
            number, is_right, answer = back.get(timeout=WAIT_SECONDS)
            expect(is_right, "tensor %d is wrong there" % number)
            expect(torch.equal(sent[number], mixed(torch, number) + 1), "tensor %d has not what was written" % number)
            expect(torch.equal(answer, sent[number]), "the answer to tensor %d is wrong" % number)
            del answer
    ended(child, there)


def ipc_parameter(there, back):
    torch = start()
    parameter = there.get()
    told = (isinstance(parameter, torch.nn.Parameter), parameter.requires_grad, is_all(parameter, 1.0))
    with torch.no_grad():
        parameter.mul_(3)
    torch.cuda.synchronize()
    back.put(told)
    there.get()


def check_ipc_parameter():
    """shares a parameter (test_cuda_parameter_sharing)"""
    torch = start()
    child, there, back = spawned(torch, ipc_parameter)
    parameter = torch.nn.Parameter(torch.ones(5, 5, device="cuda"))
    torch.cuda.synchronize()
    there.put(parameter)
    told = back.get(timeout=WAIT_SECONDS)
    expect(told == (True, True, True), "a parameter, with gradients, of ones: %r" % (told,))
    expect(is_all(parameter, 3.0), "it has not what was written")
    ended(child, there)


def ipc_event(there, back):
    start()
    event, tensor = there.get()
    back.put("ready")
    there.get()
    event.synchronize()
    back.put(is_all(tensor, 8.0))
    there.get()


def check_ipc_event():
    """sends an event, which another process waits for (test_event_multiprocess)"""
    torch = start()
    child, there, back = spawned(torch, ipc_event)
    event = torch.cuda.Event(enable_timing=False, interprocess=True)
    expect(event.query(), "a new event is pending")
    tensor = filled(torch, 1.0, MIB)
    torch.cuda.synchronize()
    there.put((event, tensor))
    expect(back.get(timeout=WAIT_SECONDS) == "ready", "the other process has failed")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20 * SLEEP_CYCLES)
        tensor.fill_(8.0)
        event.record()
    there.put("go")
    expect(back.get(timeout=WAIT_SECONDS), "the other process did not wait for the event")
    expect(event.query(), "the event is pending after it was waited for")
    ended(child, there)


def ipc_resend(there, back):
    start()
    from multiprocessing.reduction import ForkingPickler
    tensor = there.get()
    back.put(tensor.clone())
    there.get()
    try:
        back.put(bytes(ForkingPickler.dumps(tensor)))
    except Exception as error:
        back.put("%s: %s" % (type(error).__name__, str(error).splitlines()[0]))
    there.get()


def check_ipc_resend():
    """returns a copy of a received tensor, and sends or refuses the tensor itself (test_cuda_memory_allocation)"""
    torch = start()
    child, there, back = spawned(torch, ipc_resend)
    tensor = filled(torch, 4.0, 1000)
    torch.cuda.synchronize()
    there.put(tensor)
    copy = back.get(timeout=WAIT_SECONDS)
    expect(is_all(copy, 4.0), "the copy is wrong")
    copy.fill_(5.0)
    there.put("go")
    told = back.get(timeout=WAIT_SECONDS)
    if isinstance(told, bytes):
        import pickle
        try:
            again = pickle.loads(told)
            expect(is_all(again, 4.0), "the tensor that was sent again is wrong")
            told = "it can be sent again"
        except RuntimeError as error:
            told = "refused where it is received: " + str(error).splitlines()[0]
    else:
        told = "refused where it is sent: " + told
    expect(is_all(tensor, 4.0), "the tensor has changed")
    ended(child, there)
    return told


# ---- Streams and copies


def check_copies_view():
    """keeps memory whose view another stream uses (test_record_stream_on_shifted_view)"""
    torch = start()
    maker, reader = torch.cuda.Stream(), torch.cuda.Stream()
    for offset in (1, 5, 100000):
        with torch.cuda.stream(maker):
            base = filled(torch, 2.0, MIB)
            view = base[offset:]
        reader.wait_stream(maker)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(SLEEP_CYCLES)
            total = view.sum()
        view.record_stream(reader)
        place = base.data_ptr()
        del base, view
        with torch.cuda.stream(maker):
            new = filled(torch, -1.0, MIB)
        is_busy = not reader.query()
        expect(new.data_ptr() != place or not is_busy, "memory in use was given away")
        torch.cuda.synchronize()
        expect(total.item() == 2.0 * (MIB - offset), "the other stream read %g" % total.item())
        expect(is_all(new, -1.0), "the new tensor is wrong")
    expect(is_busy, "the device was too fast for this check")


def layouts(torch, x):
    """Tensors of the values of x (a matrix) in several layouts."""
    return {"rows": x, "transposed": x.t(), "every second": x[::2, 1::3], "narrow": x[3:-2, 5:9],
            "permuted": x.reshape(4, -1, x.shape[1]).permute(2, 0, 1),
            "flipped": x.flip(0)[1:]}


def check_copies_strided():
    """copies tensors that are not contiguous (test_noncontiguous_pinned_memory, test_copy_non_blocking)"""
    torch = start()
    numbers = torch.arange(512 * 96, dtype=torch.float32).reshape(512, 96)
    device = layouts(torch, numbers.cuda())
    for name, host in layouts(torch, numbers).items():
        there = device[name]
        expect(torch.equal(there.cpu(), host), "%s: to the host" % name)
        expect(torch.equal(host.cuda().cpu(), host), "%s: to the device" % name)
        expect(torch.equal(host.pin_memory().cuda(non_blocking=True).cpu(), host), "%s: from pinned memory" % name)
        expect(torch.equal(there.contiguous().cpu(), host), "%s: made contiguous" % name)
        expect(torch.equal(there.to(torch.float64).cpu(), host.double()), "%s: to another type" % name)
        into = torch.full((*host.shape, 2), -1.0, device="cuda")
        into[..., 0].copy_(there)
        expect(torch.equal(into[..., 0].cpu(), host) and is_all(into[..., 1], -1.0), "%s: into a part" % name)
        pinned = torch.empty(host.shape, pin_memory=True)
        pinned.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        expect(torch.equal(pinned, host), "%s: to pinned memory" % name)


def check_copies_streams():
    """copies between streams while memory is freed (test_copy_streams)"""
    torch = start()
    streams = [torch.cuda.Stream() for _ in range(3)]
    results = []
    for number in range(150):
        one, other = streams[number % 3], streams[(number + 1) % 3]
        with torch.cuda.stream(one):
            source = filled(torch, float(number), MIB)
        other.wait_stream(one)
        with torch.cuda.stream(other):
            into = torch.zeros(MIB, device="cuda")
            into.copy_(source)
            results.append((into != number).sum())
        source.record_stream(other)
        del source, into
    torch.cuda.synchronize()
    wrong = [number for number, count in enumerate(results) if count.item()]
    expect(not wrong, "copies %r are wrong" % wrong)


def main():
    found = checks.find(globals())
    if sys.argv[1:2] == ["--one"]:
        Runner(__file__, found, KINDS, ALONE, clean).run_here(sys.argv[3:])
        return
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].splitlines()[0])
    parser.add_argument("--allocator", choices=[*KINDS, "both"], default="both")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = [name for name in found if not options.names or name in options.names or
             name.split("_")[0] in options.names]
    unknown = [word for word in options.names if not any(word in (name, name.split("_")[0]) for name in found)]
    if unknown:
        sys.exit("unknown: %s; there are %s" % (", ".join(unknown), ", ".join(found)))
    kinds = KINDS if options.allocator == "both" else [options.allocator]
    Runner(__file__, found, KINDS, ALONE, clean, options.jobs).run(kinds, names)


if __name__ == "__main__":
    main()
