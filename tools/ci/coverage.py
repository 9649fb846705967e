#!/usr/bin/env python3
"""Builds with branch counters (build/coverage), runs the tests and prints which branches of the library they took.

usage: coverage.py [--missed]

The core is src/ without the cuda driver, which needs a GPU, and without the libraries of src/torch/ and src/preload/;
these three have one sum of their own. Each condition of && and || has two branches; branches taken by exceptions do not
count, nor do those of assertions that fail. A comment on the line of a
branch that no test can take excludes it,
    if (broken) { /* unreachable: why */
and such a comment is an error if all branches of its line were taken. Exits with 1 if fewer than 95 % of the core's
branches were taken, or if a comment is wrong.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(HOME, "build", "coverage")
MARK = re.compile(r"/\* unreachable: (.*?)\*/")
ASSERTION = re.compile(r"^\s*VMM_ASSERT(_HELD)?\(")
BESIDE = re.compile(r"^src/(driver/cuda/|torch/|preload/)")
FILES_A_RUN = 16
GATE = 95  # %


def tests_run():
    """Whether all pass."""
    if shutil.which("gcov") is None:
        sys.exit("error: gcov is missing (Debian, Ubuntu: apt-get install gcc)")
    subprocess.run([os.path.join(HOME, "tools", "build.sh"), "coverage"], check=True)
    for path in glob.glob(os.path.join(BUILD, "**", "*.gcda"), recursive=True):
        os.unlink(path)
    log = os.path.join(BUILD, "tests.log")
    with open(log, "wb") as file:
        done = subprocess.run(["ctest", "--preset", "coverage", "--output-on-failure", "-j", str(os.cpu_count())],
                              cwd=HOME, check=False, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print("error: tests failed, so the figures below are too low; see " + log)
    return done.returncode == 0


def readings():
    """Yields gcov's report of every object of the library."""
    notes = sorted(glob.glob(os.path.join(BUILD, "src", "**", "*.gcno"), recursive=True))
    for first in range(0, len(notes), FILES_A_RUN):
        done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities",
                               *notes[first:first + FILES_A_RUN]], check=True, text=True, cwd=BUILD,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for report in done.stdout.splitlines():
            if report.startswith("{"):
                yield json.loads(report)


class File:
    def __init__(self, path):
        with open(os.path.join(HOME, path), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.marked = {number for number, line in enumerate(lines, 1) if MARK.search(line)}
        self.asserted = {number for number, line in enumerate(lines, 1) if ASSERTION.match(line)}
        self.branches = {}  # (line, function, number within the line): how often it was taken
        self.lines = {}

    def add(self, line):
        number = line["line_number"]
        self.lines[number] = self.lines.get(number, 0) + line["count"]
        for place, branch in enumerate(line["branches"]):
            key = number, line.get("function_name"), place
            if not branch["throw"]:
                self.branches[key] = self.branches.get(key, 0) + branch["count"]

    def missed(self):
        return [key[0] for key, count in self.branches.items() if count == 0]

    def excluded(self):
        return sum(number in self.marked | self.asserted for number in self.missed())

    def counts(self):
        """[branches without excluded ones, taken branches, excluded branches, lines, lines reached]"""
        excluded = self.excluded()
        taken = sum(count > 0 for count in self.branches.values())
        return [len(self.branches) - excluded, taken, excluded, len(self.lines),
                sum(count > 0 for count in self.lines.values())]

    def places(self):
        return sorted(set(self.missed()) - self.marked - self.asserted)


def read():
    files = {}
    for report in readings():
        for part in report["files"]:
            path = os.path.normpath(os.path.join(report["current_working_directory"], part["file"]))
            path = os.path.relpath(path, HOME)
            if path.startswith("src/"):
                file = files.setdefault(path, None) or File(path)
                files[path] = file
                for line in part["lines"]:
                    file.add(line)
    return files


def row(name, counts, more=""):
    branches, taken, excluded, lines, reached = counts
    share = "%7.1f" % (100.0 * taken / branches) if branches else "      -"
    return ("%-28s %8d %8d %8d %s   %6d %6d  %s" % (name, branches, taken, excluded, share, lines, reached,
                                                   more)).rstrip()


def total(files, is_core):
    chosen = [file.counts() for path, file in files.items() if bool(BESIDE.match(path)) != is_core]
    return [sum(column) for column in zip(*chosen)] or [0] * 5


def stale(files):
    return ["%s:%d: marked as unreachable, but all its branches were taken, or it has no branches" % (path, number)
            for path, file in sorted(files.items())
            for number in sorted(file.marked - set(file.missed()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--missed", action="store_true", help="show the lines whose branches were not all taken")
    options = parser.parse_args()
    passed = tests_run()
    files = read()
    print("%-28s %8s %8s %8s %7s   %6s %6s" % ("file", "branches", "taken", "excluded", "%", "lines", "reached"))
    for path, file in sorted(files.items()):
        more = " ".join(map(str, file.places())) if options.missed else ""
        print(row(path[len("src/"):], file.counts(), more))
    core = total(files, True)
    print(row("outside the core", total(files, False)))
    print(row("the core", core))
    faults = stale(files)
    for fault in faults:
        print(fault)
    share = 100.0 * core[1] / core[0] if core[0] else 0
    met = share >= GATE
    print("branches of the core: %.2f %%, at least %.1f %%: %s" % (share, GATE, "met" if met else "NOT met"))
    sys.exit(0 if passed and met and not faults else 1)


if __name__ == "__main__":
    main()
