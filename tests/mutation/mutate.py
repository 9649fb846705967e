#!/usr/bin/env python3
"""Measures how many small faults the tests find: brings faults into the core of the library, one at a time, and runs
the tests until one fails.

usage: mutate.py [--seed N] [--count N] [--minutes M] [--gate PERCENT] [--again] [--work FOLDER]
                 [--files REGEX] [--tests REGEX] [--labels WORDS] [--slowest SECONDS] [--flags FLAGS]

Draws a sample of --count faults by --seed from all those of the files. FOLDER keeps the results: a run that --minutes
ended continues there when it is started again, and --again tries the faults that survived once more. The sources are
copied to FOLDER and built there; no other folder changes. Faults that do not change the compiled library are not part
of the sample. FLAGS take the place of those of Release. Exits with 1 if the tests found fewer than PERCENT.
"""
import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time

import mutants
import trials

CORE = r"^src/(base|vm|lane|cache|debug|api)/.*\.[ch]$"
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--gate", type=float, default=85)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--work", default=os.path.join(HOME, "build", "mutate"))
    parser.add_argument("--files", default=CORE)
    parser.add_argument("--tests", default="")
    parser.add_argument("--labels", default="unit,api,fault,stress,fuzz,negative,debug,life")
    parser.add_argument("--slowest", type=float, default=20)
    parser.add_argument("--flags")
    return parser.parse_args()


def sources(files):
    found = {}
    for where, _, names in os.walk(os.path.join(HOME, "src")):
        for name in names:
            path = os.path.relpath(os.path.join(where, name), HOME)
            if re.search(files, path):
                with open(os.path.join(HOME, path), encoding="utf-8") as file:
                    found[path] = file.read()
    return dict(sorted(found.items()))


def shuffle(codes, seed):
    """All mutants, in an order that depends on the seed. Mutants of unchanged lines keep their order."""
    found = [mutant for path, code in codes.items() for mutant in mutants.of_file(path, code)]
    return sorted(found, key=lambda mutant: hashlib.sha256(b"%d %s" % (seed, mutant.key().encode())).digest())


class Results:
    """Verdicts by mutant, stored in a file."""

    def __init__(self, path):
        self.path, self.verdicts = path, {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.verdicts = json.load(file)

    def put(self, mutant, verdict):
        self.verdicts[mutant.key()] = verdict
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.verdicts, file, indent=0)


def judge_sample(options, order, codes, results, trial):
    """Judges mutants until the sample is full; returns the sample."""
    end = time.monotonic() + 60 * options.minutes
    sample = []
    for mutant in order:
        verdict = results.verdicts.get(mutant.key())
        if verdict is None or (options.again and verdict[0] == "survived"):
            if time.monotonic() > end:
                break
            verdict = trial.judge(mutant, codes[mutant.path])
            results.put(mutant, verdict)
            print("%-8s %s:%d %s %s %s" % (verdict[0], mutant.path, mutant.line, mutant.kind, verdict[1], verdict[2]),
                  flush=True)
        if verdict[0] in ("killed", "survived"):
            sample.append((mutant, verdict))
        if len(sample) == options.count:
            break
    return sample


def table(sample):
    rows = {}
    for mutant, verdict in sample:
        row = rows.setdefault(mutant.path, [0, 0, 0])
        row[0] += 1
        row[1] += verdict[0] == "killed"
        row[2] += verdict[2] == "takes too long"
    print("\n%-28s %8s %8s %14s" % ("file", "faults", "found", "by a time-out"))
    for path, row in sorted(rows.items()):
        print("%-28s %8d %8d %14d" % (path, *row))


def report(options, sample):
    """Prints the results; returns whether the tests found enough."""
    killed = sum(verdict[0] == "killed" for _, verdict in sample)
    print("\nnot found:")
    for mutant, verdict in sorted(sample, key=lambda entry: (entry[0].path, entry[0].line)):
        if verdict[0] == "survived":
            print(mutant.diff())
    table(sample)
    share = 100.0 * killed / max(1, len(sample))
    print("\nseed %d: %d faults of %d asked for, %d found: %.1f %%; at least %.1f %%: %s" % (
        options.seed, len(sample), options.count, killed, share, options.gate,
        "met" if share >= options.gate else "NOT met"))
    return bool(sample) and share >= options.gate


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the running test is killed too
    os.makedirs(options.work, exist_ok=True)
    codes = sources(options.files)
    order = shuffle(codes, options.seed)
    print("%d files, %d mutants" % (len(codes), len(order)), flush=True)
    try:
        trial = trials.Trials(HOME, options.work, options.tests, set(options.labels.split(",")), options.slowest,
                              options.flags)
    except trials.Failure as failure:
        sys.exit(str(failure))
    print("%d tests, %.0f s in all" % (len(trial.tests), sum(test.seconds for test in trial.tests)), flush=True)
    results = Results(os.path.join(options.work, "results.json"))
    sys.exit(0 if report(options, judge_sample(options, order, codes, results, trial)) else 1)


main()
