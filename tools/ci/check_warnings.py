#!/usr/bin/env python3
"""Compiles every source with Clang and makes no objects: a warning is an error.

usage: check_warnings.py

Uses the preset ci-clang, in build/ci-clang. Building it would take twice as long, and find the same.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(HOME, "build", "ci-clang")


def run(command, folder):
    """What a command prints if it fails, else nothing."""
    done = subprocess.run(command, cwd=folder, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout or "%s: status %d" % (command[0], done.returncode) if done.returncode != 0 else ""


def check(entry):
    command = shlex.split(entry["command"])
    at = command.index("-o")
    return run([*command[:at], *command[at + 2:], "-fsyntax-only"], entry["directory"])


def main():
    failure = run(["cmake", "--preset", "ci-clang"], HOME)
    if failure:
        sys.exit(failure)
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(check, entries) if text]
    print("".join(failures), end="")
    print("Clang: %d files, %d with warnings" % (len(entries), len(failures)))
    sys.exit(1 if failures or not entries else 0)


if __name__ == "__main__":
    main()
