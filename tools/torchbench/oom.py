#!/usr/bin/env python3
"""Out of memory is caught in Python, the process goes on, and a smaller batch then trains.

usage: oom.py        needs VMMCACHE_LIBRARY, and tools/python in PYTHONPATH

Ends with 1 if the error is none that PyTorch's users catch, or if training does not go on.
"""
import sys

import torch
import vmmcache

LIMIT = 4 << 30
WIDTH = 4096
OUT_OF_MEMORY = "torch.OutOfMemoryError"


def train(model, optimizer, batch):
    """One step; its loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.randn(batch, WIDTH, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def parts():
    for _ in range(4):
        yield torch.nn.Linear(WIDTH, WIDTH)
        yield torch.nn.GELU()


def caught(model, optimizer, batch):
    """The error of a step that is too large, which ends with this function: it holds on to tensors."""
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
    ours = 0
    batch = 1 << 18
    while batch > 1:
        name, said = caught(model, optimizer, batch)
        if name is None:
            break
        print("batch of %d: %s" % (batch, name))
        if ours == 0:
            print(said)
        ours += name == OUT_OF_MEMORY or "out of memory" in said.lower()
        batch //= 2
    losses = [train(model, optimizer, batch) for _ in range(5)]
    print("batch of %d: trains, losses %s" % (batch, " ".join("%.6f" % loss for loss in losses)))
    print("out of memory, as counted: %d" % vmmcache.memory_stats()["num_ooms"])
    if ours == 0 or any(loss != loss for loss in losses):
        sys.exit("error: no error that says out of memory came, or training did not go on")


main()
