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
AT_ONCE = 20  # files for one process: a third of the time of a small one is its start


def run(command, folder):
    """What a command prints if it fails, else nothing."""
    done = subprocess.run(command, cwd=folder, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout or "%s: status %d" % (command[0], done.returncode) if done.returncode != 0 else ""


def frontend(command, folder):
    """The command of the compiler proper that Clang would start; its last word is the file."""
    said = subprocess.run([*command, "-###"], cwd=folder, text=True, check=True, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE).stderr
    return shlex.split(next(line for line in said.splitlines() if '"-cc1"' in line))


def groups(entries):
    """Files that are compiled alike, as pairs of a command without its file and a folder, and at most AT_ONCE files."""
    alike = {}
    for entry in entries:
        command = shlex.split(entry["command"])
        at = command.index("-o")
        words = [word for word in command[:at] + command[at + 2:] if word not in ("-c", entry["file"])]
        alike.setdefault((*words, entry["directory"]), []).append(entry["file"])
    return [((*words, "-fsyntax-only"), folder, files[first:first + AT_ONCE])
            for (*words, folder), files in alike.items() for first in range(0, len(files), AT_ONCE)]


def check(group):
    words, folder, files = group
    command = frontend([*words, files[0]], folder)
    return run([*command, *files[1:]], folder)


def main():
    failure = run(["cmake", "--preset", "ci-clang"], HOME)
    if failure:
        sys.exit(failure)
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(check, groups(entries)) if text]
    print("".join(failures), end="")
    print("Clang: %d files, %s" % (len(entries), "some with warnings" if failures else "0 with warnings"))
    sys.exit(1 if failures or not entries else 0)


if __name__ == "__main__":
    main()
