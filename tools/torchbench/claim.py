#!/usr/bin/env python3
"""How long a process waits for memory that another one on its GPU holds idle, while that one computes.

usage: claim.py [--gib N] [--rounds N]

A holder has N GiB (8) of idle memory and multiplies matrices without a pause. A claimant has filled the rest of the
device, and allocates N GiB: the time until it has written the first byte is that of a claim. Beside it: what the
driver takes to release that memory in the holder and to create it in the claimant without a claim, first in each
process before it has the other one beside it on a full device, then with it; and the holder's steps before and during
a claim. Prints a table; exits with 1 if a claim takes 5 ms more than the driver takes beside the other process
without a claim. Needs VMMCACHE_LIBRARY, the path of libvmmcache_torch.so.
"""
import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

import allocators
from documents import table

MORE_MS = 5  # than the driver's own time
BLOCK = 64 << 20
STEP_PRODUCTS = 4
ALONE = 5  # measurements without a claim
SPARE = 1 << 30  # that the claimant leaves beside its ballast: less than any claim


def say(**what):
    print(json.dumps(what), flush=True)


def prepared():
    import vmmcache
    vmmcache.install(native=True, neighbours=True)
    import torch
    torch.zeros(1, device="cuda")
    return torch


def figure_ms(name):
    from vmmcache import _figures
    return _figures.Figures(0).count(name) / 1e6


def driver_ms():
    return figure_ms("driver_ns")


# ---- The holder ----------------------------------------------------------------------------------------------------


class Work(threading.Thread):
    """Products on a stream of its own; each step is timed."""

    def __init__(self, torch):
        super().__init__(daemon=True)
        self.torch, self.steps, self.ends = torch, [], False

    def run(self):
        torch = self.torch
        with torch.cuda.stream(torch.cuda.Stream()):
            left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
            out = torch.empty_like(left)
            while not self.ends:
                began = time.monotonic()
                for _ in range(STEP_PRODUCTS):
                    torch.mm(left, left, out=out)
                torch.cuda.current_stream().synchronize()
                self.steps.append((began, time.monotonic() - began))


def idle_make(torch, size):
    """Allocates and frees."""
    blocks = [torch.empty(BLOCK, dtype=torch.uint8, device="cuda") for _ in range(size // BLOCK)]
    del blocks


def released_ms(torch, size):
    idle_make(torch, size)
    before = driver_ms()
    torch.cuda.empty_cache()
    return driver_ms() - before


def holder(size):
    torch = prepared()
    work = Work(torch)
    work.start()
    while len(work.steps) < 100:
        time.sleep(0.01)
    say(released_ms=statistics.median(released_ms(torch, size) for _ in range(ALONE)))
    for line in sys.stdin:
        if line == "release\n":
            say(released_ms=statistics.median(released_ms(torch, size) for _ in range(ALONE)))
            continue
        if line == "fill\n":
            idle_make(torch, size)
        say(driver=driver_ms(), steps=work.steps if line == "steps\n" else [])
    work.ends = True
    work.join()


# ---- The claimant --------------------------------------------------------------------------------------------------


def taken_ms(torch, size):
    """Milliseconds until the first byte of a new tensor is written, the begin and the end, and the tensor."""
    began = time.monotonic()
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    block[:1].fill_(1)
    torch.cuda.synchronize()
    ended = time.monotonic()
    return (ended - began) * 1e3, began, ended, block


def created_ms(torch, size):
    torch.cuda.empty_cache()
    before = driver_ms()
    taken_ms(torch, size)
    return driver_ms() - before


def claimant(size):
    torch = prepared()
    say(created_ms=statistics.median(created_ms(torch, size) for _ in range(ALONE)))
    torch.cuda.empty_cache()
    for line in sys.stdin:
        if line.startswith("ballast"):
            free = torch.cuda.mem_get_info()[0] - int(line.split()[1])  # what the holder is going to have
            ballast = torch.empty(free - SPARE, dtype=torch.uint8, device="cuda")
            say(created_ms=statistics.median(created_ms(torch, size) for _ in range(ALONE)), ballast=ballast.numel())
            torch.cuda.empty_cache()
            continue
        waited, in_driver = figure_ms("neighbour_wait_ns"), driver_ms()
        ms, began, ended, block = taken_ms(torch, size)
        say(ms=ms, began=began, ended=ended, waited=figure_ms("neighbour_wait_ns") - waited,
            driver=driver_ms() - in_driver)
        del block
        torch.cuda.empty_cache()


# ---- Both ----------------------------------------------------------------------------------------------------------


class Process:
    def __init__(self, role, size):
        env = allocators.environment("native", has_package=True, VMM_NEIGHBOURS_WAIT_MS="2000")
        self.process = subprocess.Popen([sys.executable, __file__, "--role", role, "--gib", str(size >> 30)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("error: a process ended with status %s" % self.process.wait())
        return json.loads(line)

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def measure(size, rounds):
    giver = Process("holder", size)
    released_ms = giver.answer()["released_ms"]
    taker = Process("claimant", size)
    created_ms = taker.answer()["created_ms"]
    beside_ms = taker.ask("ballast " + str(size))["created_ms"], giver.ask("release")["released_ms"]
    claims = []
    for _ in range(rounds):
        before = giver.ask("fill")["driver"]
        time.sleep(1)  # the others see what the holder has
        claim = taker.ask("claim")
        claim["released"] = giver.ask("look")["driver"] - before
        claims.append(claim)
    steps = giver.ask("steps")["steps"]
    if taker.end() != 0 or giver.end() != 0:
        raise SystemExit("error: a process failed at its end")
    return (released_ms, created_ms), beside_ms[::-1], claims, steps


def own_ms(claim):
    """The time in no call of the driver."""
    return claim["ms"] - claim["released"] - claim["driver"]


def report(size, alone_ms, beside_ms, claims, steps):
    during, other = [], []
    for began, seconds in steps[10:]:
        is_during = any(began < claim["ended"] and began + seconds > claim["began"] for claim in claims)
        (during if is_during else other).append(seconds * 1e3)
    took = statistics.median(claim["ms"] for claim in claims)
    rows = [("the driver releases %d GiB in the holder alone" % (size >> 30), alone_ms[0]),
            ("the driver creates them in the claimant before it fills the device", alone_ms[1]),
            ("the driver releases them beside the other process", beside_ms[0]),
            ("the driver creates them beside the other process", beside_ms[1]),
            ("a claim, until the first byte is written, median of %d" % len(claims), took),
            ("the longest", max(claim["ms"] for claim in claims)),
            ("of it, the holder's driver, median", statistics.median(claim["released"] for claim in claims)),
            ("of it, the claimant waits, median", statistics.median(claim["waited"] for claim in claims)),
            ("of it, the claimant's driver, median", statistics.median(claim["driver"] for claim in claims)),
            ("of it, neither driver, median", statistics.median(own_ms(claim) for claim in claims)),
            ("a step of the holder, median of %d" % len(other), statistics.median(other)),
            ("a step during a claim, median of %d" % len(during), statistics.median(during)),
            ("the longest of these", max(during))]
    print("\n".join(table(["figure", "ms"], [[name, "%.2f" % ms] for name, ms in rows])))
    return took <= sum(beside_ms) + MORE_MS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--role", choices=("holder", "claimant"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    size = settings.gib << 30
    if settings.role:
        return {"holder": holder, "claimant": claimant}[settings.role](size)
    return int(not report(size, *measure(size, settings.rounds)))


if __name__ == "__main__":
    sys.exit(main())
