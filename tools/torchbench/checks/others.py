"""Other users of the memory: CuPy, Triton, other processes and other GPUs.

Called by: checks.run().
"""
import os
import tempfile

import torch
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn.parallel import comm

import allocators
from checks import close, expect


def cupy():
    import cupy as cp
    import vmmcache
    vmmcache.install_cupy()
    before = vmmcache.memory_allocated()
    x = cp.arange(1 << 22, dtype=cp.int64)
    expect(vmmcache.memory_allocated() >= before + x.nbytes, "CuPy does not allocate from vmmcache")
    expect(int((x * 2).sum()) == (1 << 22) * ((1 << 22) - 1), "CuPy's sum is wrong")
    there = torch.from_dlpack(x)
    there += 1
    expect(int(x[0]) == 1, "PyTorch and CuPy do not share the array")
    a = cp.random.rand(300, 300)
    expect(bool(cp.allclose(cp.linalg.inv(a) @ a, cp.eye(300), atol=1e-6)), "CuPy's solver")
    with cp.cuda.Stream(non_blocking=True):
        y = cp.ones(1 << 20)
        expect(float(y.sum()) == float(1 << 20), "CuPy on a stream of its own")
    del x, y, there, a
    torch.cuda.synchronize()
    expect(vmmcache.memory_allocated() <= before + (64 << 20), "CuPy's memory was not freed")


def triton_kernel():
    """A compiled function: Triton's kernels on the allocator's memory."""
    @torch.compile
    def fused(x, y):
        return torch.nn.functional.gelu(x * y + 1).sum(dim=1)

    for rows in (100, 1000):
        x, y = (torch.randn(rows, 4096, device="cuda") for _ in range(2))
        close(fused(x, y), torch.nn.functional.gelu(x.double() * y.double() + 1).sum(dim=1), 1e-4, "fused")


def double_sum(tensors, answers, allocator):
    """Runs in the other process."""
    allocators.install(allocator)
    x = tensors.get()
    answers.put(float((x * 2).sum()))


def tensor_ipc():
    """Sends a tensor to another process, which opens its memory."""
    context = torch.multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    x = torch.ones(1 << 20, device="cuda")
    reduce_tensor(x)  # raises here; the queue would only print the error
    tensors.put(x)
    process = context.Process(target=double_sum, args=(tensors, answers, os.environ["CHECKED_ALLOCATOR"]), daemon=True)
    process.start()
    expect(answers.get(timeout=60) == float(1 << 21), "the other process read wrong numbers")
    process.join()


def peer_copies():
    """Copies and kernels between two GPUs, while memory of both is allocated and freed."""
    expect(torch.cuda.device_count() >= 2, "there is only one GPU")
    expect(torch.cuda.can_device_access_peer(0, 1), "the GPUs cannot access each other's memory")
    for size in (10, 1 << 16, 1 << 22, 1 << 26):
        for _ in range(4):
            x = torch.randint(0, 1000, (size,), device="cuda:0")
            y = x.to("cuda:1", non_blocking=True)
            z = (y + 1).to("cuda:0", non_blocking=True)
            expect(torch.equal(z, x + 1), "a copy of %d numbers differs" % size)
    parts = comm.broadcast(torch.arange(1 << 20, device="cuda:0"), [0, 1])
    total = comm.reduce_add(parts, 0)
    expect(torch.equal(total, torch.arange(1 << 20, device="cuda:0") * 2), "the sum of both GPUs")
    model = torch.nn.Linear(1024, 1024)
    both = torch.nn.DataParallel(model.cuda(), device_ids=[0, 1])
    x = torch.randn(64, 1024, device="cuda:0")
    close(both(x), model(x), 1e-5, "DataParallel")


def rank_run(rank, folder, allocator):
    """Runs in each of the two processes."""
    allocators.install(allocator)
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method="file://" + os.path.join(folder, "ranks"),
                                         rank=rank, world_size=2)
    for size in (1000, 1 << 20, 1 << 26):
        x = torch.full((size,), float(rank + 1), device="cuda")
        torch.distributed.all_reduce(x)
        expect(bool((x == 3).all()), "all_reduce of %d numbers" % size)
        parts = [torch.empty_like(x) for _ in range(2)]
        torch.distributed.all_gather(parts, torch.full_like(x, float(rank)))
        expect(bool((parts[0] == 0).all() and (parts[1] == 1).all()), "all_gather of %d numbers" % size)
    torch.distributed.destroy_process_group()


def nccl():
    """One process per GPU; collectives on the allocator's memory."""
    expect(torch.cuda.device_count() >= 2, "there is only one GPU")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_run, (folder, os.environ["CHECKED_ALLOCATOR"]), nprocs=2)
