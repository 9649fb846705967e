"""Counts the instructions of an allocation and its free with callgrind, and compares them with ceilings.

usage: instructions.py VALGRIND PAIRS CEILINGS

The difference of two runs with different numbers of pairs leaves out the start-up and does not depend on the load of
the machine. Exits with 1 if a figure is above its ceiling, with 77 if valgrind is missing.
"""
import csv
import re
import subprocess
import sys

SKIPPED = 77
# Whole rounds of the mixed set of pairs.c.
FEW, MANY = 8192, 24576


def instructions(valgrind, pairs, kind, count):
    result = subprocess.run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", pairs, kind,
                           str(count)], text=True, stderr=subprocess.PIPE, check=False)
    match = re.search(r"Collected\s*:\s*(\d+)", result.stderr)
    if result.returncode != 0 or not match:
        sys.exit("callgrind of %s %s %d failed:\n%s" % (pairs, kind, count, result.stderr))
    return int(match.group(1))


def measure(valgrind, pairs, kind):
    few, many = (instructions(valgrind, pairs, kind, count) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def main(valgrind, pairs, ceilings):
    try:
        subprocess.run([valgrind, "--version"], check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        print("skipped: valgrind is missing, which counts instructions (Debian, Ubuntu: "
              "apt-get install valgrind)")
        sys.exit(SKIPPED)
    with open(ceilings, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    above = 0
    print("%-10s %12s %8s" % ("pair", "instructions", "ceiling"))
    for row in rows:
        figure, ceiling = measure(valgrind, pairs, row["pair"]), float(row["ceiling"])
        above += figure > ceiling
        print("%-10s %12.1f %8.0f%s" % (row["pair"], figure, ceiling,
                                        "  ABOVE" if figure > ceiling else ""))
    if not rows:
        sys.exit("no ceilings in %s" % ceilings)
    sys.exit(1 if above else 0)


main(*sys.argv[1:])
