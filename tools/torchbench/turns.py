#!/usr/bin/env python3
"""Two training processes on one GPU whose peaks come in turn and do not fit together.

usage: turns.py [--allocators A,B...] [--runs N] [--rounds N]

Each process trains in rounds: two steps with a large batch, whose peak is three quarters of the device, then two with a
small one. A lock of a file lets one process at a time have its peak. What differs is what gives memory back:

    native, expandable     PyTorch's allocators: nothing does
    emptied                native, and the program calls torch.cuda.empty_cache() after each peak
    vmmcache               nothing does
    neighbours             vmmcache.install(neighbours=True): the library, when the other process needs it

A run is right if both processes finish with the losses that each has alone. Prints a table, and exits with 1 if a run
of `neighbours` is not right. Needs VMMCACHE_LIBRARY, the path of libvmmcache_torch.so.
"""
import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import allocators
from documents import table

NAMES = ("native", "expandable", "emptied", "vmmcache", "neighbours")
OUT_OF_MEMORY = 3
WIDTH = 2048  # of each layer
PEAK_ROWS = 1 << 19  # of a batch: a layer keeps 2 GiB for the backward pass
REST_ROWS = 1 << 14
SHARE = 0.75  # of the device, at a peak
STEPS = 2


def say(text):
    print(text, flush=True)


# ---- One process ---------------------------------------------------------------------------------------------------


def network(torch):
    total = torch.cuda.get_device_properties(0).total_memory
    layer_bytes = 2 * PEAK_ROWS * WIDTH
    layers = []
    for _ in range(max(1, int(SHARE * total) // layer_bytes - 3)):  # batch, gradient and result take the rest
        layers += [torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU(inplace=True)]
    return torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)


def step(torch, model, optimizer, rows):
    batch = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(torch, settings, turn):
    """Losses, and the most memory that was allocated."""
    torch.manual_seed(settings.seed)
    model = network(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(settings.rounds):
        fcntl.flock(turn, fcntl.LOCK_EX)
        losses += [step(torch, model, optimizer, PEAK_ROWS) for _ in range(STEPS)]
        if settings.worker == "emptied":
            torch.cuda.empty_cache()
        fcntl.flock(turn, fcntl.LOCK_UN)
        losses += [step(torch, model, optimizer, REST_ROWS) for _ in range(STEPS)]
    return losses, torch.cuda.max_memory_allocated()


def worker(settings):
    if settings.worker in ("vmmcache", "neighbours"):
        import vmmcache
        vmmcache.install(native=True, neighbours=settings.worker == "neighbours")
    import torch
    say("ready")
    if not sys.stdin.readline():
        return  # the parent has ended
    torch.zeros(1, device="cuda")
    began = time.monotonic()
    with open(settings.turn, "r+", encoding="utf-8") as turn:
        try:
            losses, peak = train(torch, settings, turn)
        except torch.OutOfMemoryError as error:
            say(json.dumps({"error": str(error).splitlines()[0]}))
            os._exit(OUT_OF_MEMORY)
    say(json.dumps({"losses": losses, "peak": peak, "seconds": time.monotonic() - began}))


# ---- All runs ------------------------------------------------------------------------------------------------------


def start(settings, name, seed, turn):
    env = allocators.environment("expandable" if name == "expandable" else "native", has_package=True)
    return subprocess.Popen(
        [sys.executable, __file__, "--worker", name, "--seed", str(seed), "--turn", turn,
         "--rounds", str(settings.rounds)],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def result_of(process):
    """What a worker says at its end: a dictionary with `error` if it failed."""
    last = {"error": "said nothing"}
    for line in process.stdout:
        if line.startswith("{"):
            last = json.loads(line)
    status = process.wait()
    if status not in (0, OUT_OF_MEMORY):
        last["error"] = "ended with status %d" % status
    return last


class Run:
    """Processes that begin together. They import PyTorch as soon as they are made, and use the GPU when told to."""

    def __init__(self, settings, name, seeds):
        self.turn = tempfile.NamedTemporaryFile()
        self.processes = [start(settings, name, seed, self.turn.name) for seed in seeds]

    def results(self):
        for process in self.processes:
            while process.stdout.readline() not in ("ready\n", ""):
                pass
        for process in self.processes:
            try:
                process.stdin.write("\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # result_of() says how it ended
        found = [result_of(process) for process in self.processes]
        self.turn.close()
        return found


def verdict(results, alone):
    errors = [result["error"] for result in results if "error" in result]
    if errors:
        return "out of memory" if any("out of memory" in error for error in errors) else errors[0]
    if any(result["losses"] != expected["losses"] for result, expected in zip(results, alone)):
        return "other losses"
    return "right"


def measure(settings, name, runs, alone, rows):
    following = Run(settings, name, range(len(alone)))
    for number in range(runs):
        now, following = following, Run(settings, name, range(len(alone))) if number + 1 < runs else None
        results = now.results()
        row = {"allocator": name, "verdict": verdict(results, alone),
               "seconds": max((result.get("seconds", 0) for result in results))}
        rows.append(row)
        say("%-12s run %2d: %s, %.2f s" % (name, number + 1, row["verdict"], row["seconds"]))
        for result in results:
            if "error" in result:
                say("    " + result["error"])


def report(rows, alone):
    seconds, lines = {}, []
    for name in dict.fromkeys(row["allocator"] for row in rows):
        own = [row for row in rows if row["allocator"] == name]
        right = [row["seconds"] for row in own if row["verdict"] == "right"]
        oom = sum(row["verdict"] == "out of memory" for row in own)
        seconds[name] = statistics.median(right) if right else 0
        lines.append([name, *map(str, (len(own), len(right), oom, len(own) - len(right) - oom)),
                      "%.2f" % seconds[name] if right else "-"])
    say("\n" + "\n".join(table(["allocator", "runs", "right", "out of memory", "other", "s, median"], lines)))
    say("\nalone: %s" % ", ".join("%.2f s, peak %.1f GiB" % (one["seconds"], one["peak"] / 2**30) for one in alone))
    if seconds.get("emptied") and seconds.get("neighbours"):
        say("neighbours / emptied: %.3f" % (seconds["neighbours"] / seconds["emptied"]))


def plan_read(text, runs):
    """NAME or NAME:RUNS as a pair; None: neither."""
    name, _, number = text.partition(":")
    number = number or str(runs)
    return (name, int(number)) if name in NAMES and number.isdigit() and int(number) > 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocators", default=",".join(NAMES), help="NAME or NAME:RUNS, separated by commas")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    for inner in ("--worker", "--turn"):
        parser.add_argument(inner, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.worker:
        return worker(settings)
    plan = [plan_read(text, settings.runs) for text in settings.allocators.split(",")]
    if None in plan:
        parser.error("--allocators: %r is not a list of %s" % (settings.allocators, ", ".join(NAMES)))
    alone = [Run(settings, "native", [seed]).results()[0] for seed in (0, 1)]
    if any("error" in result for result in alone):
        raise SystemExit("error: a process alone fails: %s" % alone)
    rows = []
    for name, runs in plan:
        measure(settings, name, runs, alone, rows)
    report(rows, alone)
    return int(any(row["allocator"] == "neighbours" and row["verdict"] != "right" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
