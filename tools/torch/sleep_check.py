#!/usr/bin/env python3
"""Checks sleep and wake, and installing without code, with a real PyTorch on a GPU.

usage: sleep_check.py [--plugin | --native] [CHECK...]

Runs each check in a process of its own, with the plug-in and with the allocator class, and prints a line for each:
PASS, FAIL and why, or SKIP for what this machine cannot do. The exit status is 1 if a check fails, and 77 where there
is no PyTorch with CUDA or no GPU; with VMM_REQUIRE_GPU=1 that is a failure. Set VMMCACHE_LIBRARY and PYTHONPATH as
docs/pytorch.md says. Nothing else should use the GPU meanwhile: most checks measure the device's memory, one at a time.
"""
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time

import checks
from checks import MIB, Skip, expect

GIB = 1 << 30
SLACK = 16 * MIB  # of a reading: the first copies and registrations take memory of the device, too
DRIFT = 4 * MIB
STEPS = 12
BESIDE = {"threads", "run", "workers", "no_compiler"}  # these do not measure the memory of the device


def start(**settings):
    """Installs the allocator of this check and returns (torch, vmmcache)."""
    import torch
    import vmmcache
    vmmcache.install(native=checks.kind() == "native", **settings)
    return torch, vmmcache


def used(torch):
    """Bytes of the device that are in use, by all processes."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def smi():
    """What nvidia-smi says of this machine's processes, or nothing."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-compute-apps=used_memory", "--format=csv,noheader"], text=True,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "not there"
    return done.stdout.strip().replace("\n", " + ") or "no process"


def host_bytes():
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sleep_checked(torch, vmmcache, *arguments, **named):
    """sleep(), and that as much memory went back as it says. Returns that and the seconds of the call."""
    before, began = used(torch), time.monotonic()
    released = vmmcache.sleep(*arguments, **named)
    took = time.monotonic() - began
    expect(abs(before - used(torch) - released) <= SLACK,
           "sleep() says %d MiB, the device %d" % (released >> 20, (before - used(torch)) >> 20))
    return released, took


def digest(tensors):
    return [tensor.double().sum().item() for tensor in tensors]


# ---- Jobs


def model_make(torch, width=2048, depth=6):
    torch.manual_seed(1)
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    return torch.nn.Sequential(*layers).cuda()


def train(torch, between=lambda step: None, model=None):
    """The losses of a training; between() is called after each step. The backward pass runs on its own thread."""
    model = model or model_make(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(2)
    losses = []
    for step in range(STEPS):
        data = torch.randn(64 + 128 * (step % 3), 2048, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = (model(data) - data.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        del loss, data
        between(step)
    return losses


def captured(torch, model, sizes=(1, 8, 32)):
    """[(graph, input, output)] for several sizes, in one pool, as servers capture them."""
    pool, graphs = torch.cuda.graph_pool_handle(), []
    with torch.no_grad():
        for size in sizes:
            given = torch.randn(size, 2048, device="cuda")
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(given)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                result = model(given)
            graphs.append((graph, given, result))
    return graphs


def replayed(torch, graphs):
    """The outputs of new inputs, always the same ones."""
    torch.manual_seed(3)
    outputs = []
    for _ in range(3):
        for graph, given, result in graphs:
            given.copy_(torch.randn(given.shape, device="cuda"))
            graph.replay()
            outputs.append(result.clone())
    return outputs


def same(torch, first, second):
    return len(first) == len(second) and all(torch.equal(one, two) for one, two in zip(first, second))


# ---- Sleep


def check_training():
    """trains with sleeps between the steps: the same losses as without"""
    torch, vmmcache = start()
    told = []

    def nap(step):
        if step % 3 == 1:
            told.append(sleep_checked(torch, vmmcache))
            expect(vmmcache.memory_reserved() == 0, "%d bytes stay reserved" % vmmcache.memory_reserved())
            vmmcache.wake()

    awake = train(torch)
    slept = train(torch, nap)
    expect(awake == slept, "losses differ: %r, %r" % (awake, slept))
    expect(train(torch) == awake, "a training after that differs")
    return "%d sleeps, %d MiB each" % (len(told), max(released for released, _ in told) >> 20)


def check_graphs():
    """replays captured graphs after a sleep: the same outputs"""
    torch, vmmcache = start()
    model = model_make(torch).eval()
    graphs = captured(torch, model)
    awake = [output.cpu() for output in replayed(torch, graphs)]
    for _ in range(3):
        sleep_checked(torch, vmmcache)
        expect(vmmcache.memory_reserved() == 0, "%d bytes stay reserved" % vmmcache.memory_reserved())
        vmmcache.wake()
        expect(same(torch, awake, [output.cpu() for output in replayed(torch, graphs)]), "outputs differ")
    del graphs
    gc.collect()
    torch.cuda.empty_cache()


def check_memory():
    """leaves the device what the context alone needs"""
    torch, vmmcache = start()
    model = model_make(torch)
    with vmmcache.region("cache", keep=False):
        cache = torch.zeros(2 * GIB, dtype=torch.uint8, device="cuda")
    train(torch, model=model)
    graphs = captured(torch, model.eval())
    replayed(torch, graphs)
    awake = used(torch)
    sleep_checked(torch, vmmcache)
    asleep, told = used(torch), smi()
    vmmcache.wake()
    del model, cache, graphs
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    empty, left = used(torch), vmmcache.memory_reserved()
    expect(left <= SLACK, "%d bytes stay reserved" % left)
    expect(asleep <= empty + SLACK, "%d MiB asleep, %d MiB empty" % (asleep >> 20, empty >> 20))
    return "%d MiB awake, %d asleep, %d without tensors; nvidia-smi asleep: %s" % (
        awake >> 20, asleep >> 20, empty >> 20, told)


def check_cycles():
    """sleeps and wakes a hundred times without drift"""
    torch, vmmcache = start()
    kept = [torch.randn(number % 7 + 1, 4 * MIB, device="cuda") for number in range(32)]
    before, seen, seconds = digest(kept), [], [0.0, 0.0]
    for number in range(100):
        began = time.monotonic()
        vmmcache.sleep()
        seconds[0] += time.monotonic() - began
        asleep, host = used(torch), host_bytes()
        began = time.monotonic()
        vmmcache.wake()
        seconds[1] += time.monotonic() - began
        seen.append((asleep, host, used(torch)))
        expect(number % 10 or digest(kept) == before, "cycle %d: contents differ" % number)
    drift = [last - first for first, last in zip(seen[9], seen[-1])]
    expect(max(drift) <= DRIFT, "drift in bytes: asleep %d, host %d, awake %d" % tuple(drift))
    amount = sum(tensor.nbytes for tensor in kept)
    return "%d MiB; a sleep %.0f ms, a wake %.0f ms; drift asleep %d KiB, host %d KiB, awake %d KiB" % (
        amount >> 20, seconds[0] * 10, seconds[1] * 10, *(one >> 10 for one in drift))


def check_tags():
    """sleeps and wakes parts, discards, and wakes all or nothing"""
    torch, vmmcache = start()
    total = torch.cuda.get_device_properties(0).total_memory
    with vmmcache.region("weights"):
        weights = torch.randn(64, MIB, device="cuda")
    before = digest([weights])
    with vmmcache.region("cache", keep=False):
        cache = torch.empty(int(0.3 * total), dtype=torch.uint8, device="cuda")
    address = cache.data_ptr()
    released, _ = sleep_checked(torch, vmmcache, ["weights", "cache"])
    expect(released >= weights.nbytes + cache.nbytes, "%d MiB went back" % (released >> 20))
    expect(vmmcache.sleep_state()["cache"]["backup_bytes"] == 0, "the cache was saved")
    vmmcache.wake("weights")
    expect(digest([weights]) == before, "the weights differ")
    rest = torch.empty(int(torch.cuda.mem_get_info()[0] - 0.1 * total), dtype=torch.uint8, device="cuda")
    try:
        vmmcache.wake()
        raise AssertionError("the cache woke without memory")
    except torch.OutOfMemoryError:
        pass
    expect(vmmcache.sleep_state()["cache"]["asleep"] is True, "a part of it is awake")
    del rest
    vmmcache.wake()
    cache.fill_(7)
    expect(cache.data_ptr() == address and cache[::4096].float().mean().item() == 7.0, "the cache differs")


def check_turns():
    """lets another process have the memory meanwhile"""
    torch, vmmcache = start()
    total = torch.cuda.get_device_properties(0).total_memory
    with vmmcache.region("weights", keep=False):
        kept = torch.zeros(int(total * 0.6), dtype=torch.uint8, device="cuda")
    small = torch.randn(MIB, device="cuda")
    before = digest([small])
    code = "import torch; x = torch.ones(%d, dtype=torch.uint8, device='cuda'); print(x[-1].item())" % int(total * 0.6)
    for _ in range(2):
        vmmcache.sleep()
        done = subprocess.run([sys.executable, "-c", code], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300)
        expect(done.stdout.split()[-1:] == ["1"], done.stdout)
        vmmcache.wake()
        kept.fill_(1)
        expect(digest([small]) == before, "contents differ")


def check_threads():
    """refuses allocations while memory sleeps, and serves them later"""
    import threading
    torch, vmmcache = start()
    kept = torch.ones(MIB, device="cuda")
    vmmcache.sleep()
    raised = []

    def allocate():
        try:
            torch.empty(MIB, device="cuda")
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    expect(len(raised) == 1 and "sleeps" in raised[0], "it said %r" % raised)
    vmmcache.wake()
    expect((kept + torch.ones(MIB, device="cuda")).sum().item() == 2 * MIB, "the sum differs")


def compiled(**settings):
    """Sleeps between calls of a compiled function."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise Skip("there is no C compiler")
    torch, vmmcache = start(**settings)
    model = model_make(torch, depth=2).eval()
    fast = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        given = torch.randn(32, 2048, device="cuda")
        for _ in range(4):
            wanted = fast(given).clone()
        sleep_checked(torch, vmmcache)
        vmmcache.wake()
        expect(torch.equal(fast(given), wanted), "the output differs")


def check_compiled():
    """sleeps between calls of torch.compile(mode='reduce-overhead') with plain graphs"""
    compiled(plain_graphs=True)


def check_graph_trees():
    """sleeps between calls of torch.compile(mode='reduce-overhead') with graph trees"""
    if checks.kind() != "native":
        raise Skip("the plug-in has no graph trees")
    compiled()


def check_mempool():
    """puts a torch.cuda.MemPool of a region to sleep"""
    torch, vmmcache = start()
    if checks.kind() != "native":
        raise Skip("the plug-in has no MemPool")
    with vmmcache.region("pool"):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.ones(64 * MIB, device="cuda")
    released, _ = sleep_checked(torch, vmmcache, "pool")
    expect(released >= inside.nbytes, "%d MiB went back" % (released >> 20))
    vmmcache.wake()
    expect(inside.sum().item() == inside.numel(), "its contents differ")


NCCL_ROUNDS = 5


def nccl_pools(torch, backend):
    """Pools whose memory NCCL registers: of the library and, if it exists, of ncclMemAlloc(), which never sleeps."""
    allocator, _ = checks.nccl_memory(backend)
    pools = [torch.cuda.MemPool()] + ([] if allocator is None else [torch.cuda.MemPool(allocator)])
    for pool in pools:
        with torch.cuda.use_mem_pool(pool):
            torch.zeros(8 * MIB, device="cuda")
        backend.register_mem_pool(pool)
    return pools


def nccl_sums(torch, pools, rank, number):
    """All-reduces and all-gathers tensors of each pool, old memory and new."""
    import torch.distributed as distributed
    for pool in pools:
        with torch.cuda.use_mem_pool(pool):
            given = torch.full((4 * MIB,), float(rank + number), device="cuda")
            gathered = torch.empty(8 * MIB, device="cuda")
            large = torch.full(((8 + number) * MIB,), 1.0, device="cuda")  # the pool grows
        distributed.all_gather_into_tensor(gathered, given)
        distributed.all_reduce(given)
        distributed.all_reduce(large)
        expect(given.eq(2 * number + 1).all().item(), "the sum of round %d is wrong" % number)
        expect(gathered[:4 * MIB].eq(number).all().item() and gathered[4 * MIB:].eq(number + 1).all().item(),
               "what was gathered in round %d is wrong" % number)
        expect(large.eq(2).all().item(), "the sum of new memory in round %d is wrong" % number)


def nccl_rank(rank, folder):
    """In the process of a rank: collectives before and after sleeps. Writes what the device got back."""
    torch, vmmcache = start()
    import torch.distributed as distributed
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method="file://" + os.path.join(folder, "ranks"), rank=rank,
                                   world_size=2, device_id=torch.device("cuda", rank))
    waiting = distributed.new_group(backend="gloo")
    backend = distributed.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    pools, released = nccl_pools(torch, backend), []
    for number in range(NCCL_ROUNDS):
        nccl_sums(torch, pools, rank, number)
        torch.cuda.synchronize()
        distributed.barrier(waiting)
        before = used(torch)
        said = vmmcache.sleep()
        distributed.barrier(waiting)  # the other one has dropped what it had of this memory
        released.append((said, before - used(torch)))
        distributed.barrier(waiting)
        vmmcache.wake()
        distributed.barrier(waiting)
    nccl_sums(torch, pools, rank, NCCL_ROUNDS)
    torch.cuda.synchronize()
    for pool in pools:
        backend.deregister_mem_pool(pool)
    with open(os.path.join(folder, "released%d" % rank), "w", encoding="ascii") as file:
        file.write("\n".join("%d %d" % pair for pair in released))
    distributed.destroy_process_group()


def check_nccl():
    """sleeps between collectives of memory that is registered with NCCL, on two GPUs"""
    import torch
    import torch.multiprocessing
    if checks.kind() != "native":
        raise Skip("the plug-in has no registration")
    if torch.cuda.device_count() < 2:
        raise Skip("there is one GPU")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="REG", NCCL_DEBUG_FILE=os.path.join(folder, "nccl.%p"))
        torch.multiprocessing.spawn(nccl_rank, (folder,), nprocs=2)
        pairs = []
        for rank in range(2):
            with open(os.path.join(folder, "released%d" % rank), encoding="ascii") as file:
                pairs += [tuple(map(int, line.split())) for line in file]
        for said, seen in pairs:
            expect(seen >= said - SLACK, "sleep() says %d MiB, the device got %d MiB back" % (said >> 20, seen >> 20))
        lines = 0
        for name in os.listdir(folder):
            if name.startswith("nccl."):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    lines += sum("regist" in line.lower() for line in file)
        return "%d sleeps, at least %d MiB each; NCCL says %d times that it registers" % (
            len(pairs), min(said for said, _ in pairs) >> 20, lines)


def check_compact():
    """compacts between steps"""
    torch, vmmcache = start(footprint="any")
    base = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    large = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    del base
    torch.cuda.empty_cache()
    del large
    kept = [torch.full((3 * MIB,), number % 251, dtype=torch.uint8, device="cuda") for number in range(680)][::2]
    before = digest(kept)
    torch.cuda.empty_cache()
    reserved, began = used(torch), time.monotonic()
    released = vmmcache.compact()
    took = time.monotonic() - began
    expect(released >= 256 * MIB, "%d MiB were released" % (released >> 20))
    expect(abs(reserved - used(torch) - released) <= SLACK,
           "the device has %d MiB more" % ((reserved - used(torch)) >> 20))
    expect(digest(kept) == before, "contents differ")
    return "%d MiB in %.0f ms" % (released >> 20, took * 1000)


# ---- Frameworks


def check_memory_saver():
    """pauses and resumes with the interface of torch_memory_saver"""
    torch, vmmcache = start()
    from vmmcache.memory_saver import torch_memory_saver as saver
    model = model_make(torch).eval()
    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.randn(64, MIB, device="cuda")
    with saver.region(tag="kv_cache"):
        cache = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    before, given = digest([weights]), torch.randn(8, 2048, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        wanted = model(given)
        with saver.cuda_graph(graph, tag="graph"):
            result = model(given)
    graph.replay()
    expect(torch.allclose(result, wanted, atol=1e-4), "the graph differs")
    at_first = used(torch)
    for tag in ("kv_cache", "weights", "graph"):
        saver.pause(tag)
        saver.pause(tag)
    expect(at_first - used(torch) >= weights.nbytes + cache.nbytes,
           "%d MiB went back" % ((at_first - used(torch)) >> 20))
    backup = saver.get_cpu_backup(weights)
    expect(abs(backup.double().sum().item() - before[0]) < 1, "the saved contents differ")
    expect(saver.get_cpu_backup(cache) is None, "the cache was saved")
    saver.get_cpu_backup(weights, zero_copy=True).fill_(2.0)
    with saver.disable():
        expect(torch.full((MIB,), 3.0, device="cuda").mean().item() == 3.0, "disable() differs")
    saver.resume("weights")
    expect(weights.mean().item() == 2.0, "new contents of the backup are lost")
    saver.resume()
    graph.replay()
    expect(torch.allclose(result, wanted, atol=1e-4), "the graph differs after it was paused")
    cache.fill_(1)
    saver.pause()
    saver.resume()
    expect(weights.mean().item() == 2.0, "the weights differ")


def check_vllm():
    """replays vLLM's test of CuMemAllocator with a captured graph"""
    torch, _ = start()
    from vmmcache.vllm import CuMemAllocator
    allocator = CuMemAllocator.get_instance()
    with allocator.use_memory_pool():
        weight = torch.eye(1024, device="cuda")
    with allocator.use_memory_pool(tag="discard"):
        cache = torch.empty(1024, 1024, device="cuda")

    def model(x):
        out = x @ weight
        cache[:out.size(0)].copy_(out)
        return out + 1

    x = torch.empty(128, 1024, device="cuda")
    model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    expect(allocator.get_current_usage() == 8 * MIB, "%d bytes" % allocator.get_current_usage())
    allocator.sleep()
    allocator.wake_up()
    before = used(torch)
    allocator.sleep()
    expect(before - used(torch) >= 8 * MIB, "%d MiB went back" % ((before - used(torch)) >> 20))
    allocator.wake_up()
    x.random_()
    graph.replay()
    expect(torch.allclose(y, x + 1), "the graph differs")


# ---- Without code

PROGRAM = """
import sys, torch
assert 'vmmcache' in sys.modules, 'it was not installed'
import vmmcache
x = torch.ones(1 << 20, device='cuda')
assert vmmcache.is_installed() and vmmcache.memory_allocated() == 4 << 20 and x.sum().item() == 1 << 20
print('native' if vmmcache.capabilities()['native'] else 'plugin', sys.argv[1:])
"""
WORKERS = """
import sys, torch

def work(rank, queue):
    import vmmcache
    x = torch.full((1 << 20,), float(rank), device='cuda')
    queue.put((vmmcache.is_installed(), vmmcache.memory_allocated() == 4 << 20, x.mean().item() == rank))

if __name__ == '__main__':
    context = torch.multiprocessing.get_context('spawn')
    queue = context.SimpleQueue()
    workers = torch.multiprocessing.spawn(work, (queue,), nprocs=2, join=False)
    told = [queue.get() for _ in range(2)]
    while not workers.join():
        pass
    assert told == [(True, True, True)] * 2, told
    print('done')
"""


def run_program(code, *arguments, **environment):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="ascii") as file:
            file.write(code)
        command = [sys.executable, *arguments, path, "--limit"]
        done = subprocess.run(command, text=True, check=False, env={**os.environ, **environment}, cwd=folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    expect(done.returncode == 0, done.stdout)
    return done.stdout


def check_run():
    """runs a program with python -m vmmcache run"""
    kind = checks.kind()
    said = run_program(PROGRAM, "-m", "vmmcache", "run", "--" + kind)
    expect(said.splitlines()[-1] == kind + " ['--limit']", said)


def check_workers():
    """installs in spawned workers"""
    said = run_program(WORKERS, "-m", "vmmcache", "run", "--" + checks.kind())
    expect(said.splitlines()[-1] == "done", said)


def check_no_compiler():
    """falls back to the plug-in without a compiler, and says so"""
    said = run_program(PROGRAM, "-m", "vmmcache", "run", "--auto", CXX="/nowhere/c++",
                       VMMCACHE_CACHE=tempfile.mkdtemp())
    expect("there is no C++ compiler" in said and said.splitlines()[-1].startswith("plugin"), said)


if __name__ == "__main__":
    found = checks.find(dict(globals()))
    checks.main(__file__, found, ["plugin", "native"], sys.argv[1:], alone=found.keys() - BESIDE, jobs=6)
