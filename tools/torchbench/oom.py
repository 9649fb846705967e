#!/usr/bin/env python3
"""Catches an out-of-memory error in Python; the process continues, and a smaller batch trains.

usage: oom.py        needs VMMCACHE_LIBRARY, and tools/python in PYTHONPATH

Exits with 1 if the error is not one that PyTorch's users catch, or if training does not continue.
"""
import sys

import torch
import vmmcache

LIMIT = 4 << 30
WIDTH = 4096
OUT_OF_MEMORY = "torch.OutOfMemoryError"


def train(model, optimizer, batch):
    """Trains one step; returns its loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.randn(batch, WIDTH, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def parts():
    for _ in range(4):
        yield torch.nn.Linear(WIDTH, WIDTH)
        yield torch.nn.GELU()


def catch_oom(model, optimizer, batch):
    """The error of a step that is too large. The error keeps tensors alive, so it must not leave this function."""
    try:
        train(model, optimizer, batch)
    except torch.OutOfMemoryError as error:
        return OUT_OF_MEMORY, str(error)
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return None, "it trained"


def main():
    vmmcache.install()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*parts()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    vmmcache.set_memory_limit(LIMIT)
    print("limit: %.1f GiB" % (LIMIT / 2 ** 30))
    ooms = 0
    batch = 1 << 18
    while batch > 1:
        name, message = catch_oom(model, optimizer, batch)
        if name is None:
            break
        print("batch of %d: %s" % (batch, name))
        if ooms == 0:
            print(message)
        ooms += name == OUT_OF_MEMORY or "out of memory" in message.lower()
        batch //= 2
    losses = [train(model, optimizer, batch) for _ in range(5)]
    print("batch of %d: trains, losses %s" % (batch, " ".join("%.6f" % loss for loss in losses)))
    print("out-of-memory errors in the statistics: %d" % vmmcache.memory_stats()["num_ooms"])
    if ooms == 0 or any(loss != loss for loss in losses):
        sys.exit("error: there was no out-of-memory error, or training did not continue")


main()
