#!/usr/bin/env python3
"""Checks that PyTorch, its libraries and other libraries work with an allocator, each check in a process of its own.

usage: gpu_checks.py [--allocator vmmcache] [--devices 1] [--only a,b] [--jobs 4]

Needs VMMCACHE_LIBRARY. With another --allocator the run tests the checks themselves. Prints a line for each check: ok,
or that it fails and why. Exits with 1 if a required check fails.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys

import allocators
import checks
from places import placeless

MOST_SECONDS = 150


def options_read():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--allocator", default=allocators.OURS)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    allocators.parse_names(options.allocator)
    unknown = set(filter(None, options.only.split(","))) - set(checks.PLACES)
    if unknown:
        parser.error("no such check: " + ", ".join(sorted(unknown)))
    return options


def run_here(options):
    """Runs one check in this process."""
    import torch
    allocators.install(options.allocator)
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    allocators.verify(options.allocator)
    checks.run(options.run)
    torch.cuda.synchronize()


def reason(errors):
    """The last exception in the text, with the lines that belong to it."""
    lines = [line for line in errors.rstrip().splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line[:1].isalpha() and ": " in line]
    return " ".join(lines[starts[-1]:][:4])[:600] if starts else " ".join(lines[-2:])[:600]


def run_apart(options, name):
    """Runs one check in a process of its own: (name, reason of the failure or None, output)."""
    env = allocators.environment(options.allocator, CHECKED_ALLOCATOR=options.allocator)
    command = [sys.executable, os.path.abspath(__file__), "--allocator", options.allocator, "--run", name]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=MOST_SECONDS,
                              errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return name, "did not end within %d seconds" % MOST_SECONDS, ""
    if done.returncode == 0:
        return name, None, done.stdout.strip()
    why = placeless(reason(done.stderr))
    return name, "signal %d: %s" % (-done.returncode, why) if done.returncode < 0 else why, ""


def plan(options):
    only = list(filter(None, options.only.split(",")))
    for name in only or checks.PLACES:
        is_ours_only = name in checks.OURS_ONLY and options.allocator != allocators.OURS
        is_for_two = name in checks.TWO_DEVICES and options.devices < 2
        if not is_ours_only and not is_for_two:
            yield name


def main(options):
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, why, output in pool.map(lambda each: run_apart(options, each), list(plan(options))):
            word = "ok" if why is None else "does not work" if name in checks.TOLD_ONLY else "FAILS"
            failed += word == "FAILS"
            print("%-24s %s%s" % (name, word, ": " + (why or output) if why or output else ""), flush=True)
    print("%s: %d failed" % (options.allocator, failed))
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    chosen = options_read()
    run_here(chosen) if chosen.run else main(chosen)
