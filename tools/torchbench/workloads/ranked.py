"""A transformer is trained by as many ranks as there are GPUs, each in a process of its own, on sequences of mixed
lengths. The measured process is the first rank; with one GPU it is the only one. The losses are its own."""
import os
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import allocators
from workloads.transformer import Learner, network

SECONDS = 60  # the longest wait for another rank's end


def replicate(model, rank):
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])


def shard(model, rank):
    from torch.distributed.fsdp import fully_shard
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


class Rank(Learner):
    """One rank's model."""

    def __init__(self, wrap, rank, ranks, store):
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=ranks,
                                             device_id=torch.device("cuda", rank))
        torch.manual_seed(1)
        super().__init__(wrap(network(), rank))
        torch.manual_seed(100 + rank)


def rank_run(allocator, numbers, *arguments):
    """In the process of another rank: makes each step that it gets, until that is None."""
    allocators.install(allocator)
    rank = Rank(*arguments)
    number = numbers.get()
    while number is not None:
        rank.step(number)
        number = numbers.get()
    torch.distributed.destroy_process_group()


class Ranked:
    """A subclass defines WRAP."""

    WARM = 10
    HAS_GRAPHS = False

    def __init__(self):
        ranks = torch.cuda.device_count()
        self.folder = tempfile.TemporaryDirectory()
        store = os.path.join(self.folder.name, "ranks")
        context = torch.multiprocessing.get_context("spawn")
        self.others = []
        for rank in range(1, ranks):
            numbers = context.Queue()
            arguments = allocators.installed, numbers, self.WRAP, rank, ranks, store
            process = context.Process(target=rank_run, daemon=True, args=arguments)
            process.start()
            self.others.append((numbers, process))
        self.rank = Rank(self.WRAP, 0, ranks, store)

    def step(self, number):
        for numbers, _ in self.others:
            numbers.put(number)
        return self.rank.step(number)

    def close(self):
        for numbers, _ in self.others:
            numbers.put(None)
        torch.distributed.destroy_process_group()
        for _, process in self.others:
            process.join(SECONDS)
        self.folder.cleanup()


class Replicated(Ranked):
    WRAP = staticmethod(replicate)


class Sharded(Ranked):
    WRAP = staticmethod(shard)
