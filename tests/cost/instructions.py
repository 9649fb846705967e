"""Counts the instructions of an allocation and its free with callgrind, and holds them to ceilings.

usage: instructions.py VALGRIND PAIRS CEILINGS

Two runs with different numbers of pairs: their difference has no start-up in it, and does not depend on
the machine's mood. Ends with 1 if a figure is above its ceiling, 77 where valgrind is missing.
"""
import csv
import re
import subprocess
import sys

SKIPPED = 77
# Whole rounds of the mixed set of pairs.c.
FEW, MANY = 8192, 24576


def instructions(valgrind, pairs, kind, count):
    said = subprocess.run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", pairs, kind,
                           str(count)], text=True, stderr=subprocess.PIPE, check=False)
    match = re.search(r"Collected\s*:\s*(\d+)", said.stderr)
    if said.returncode != 0 or not match:
        sys.exit("callgrind of %s %s %d failed:\n%s" % (pairs, kind, count, said.stderr))
    return int(match.group(1))


def measured(valgrind, pairs, kind):
    few, many = (instructions(valgrind, pairs, kind, count) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def main(valgrind, pairs, ceilings):
    try:
        subprocess.run([valgrind, "--version"], check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        print("skipped: instructions are counted with valgrind, which is missing (Debian, Ubuntu: "
              "apt-get install valgrind)")
        sys.exit(SKIPPED)
    with open(ceilings, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    above = 0
    print("%-10s %12s %8s" % ("pair", "instructions", "ceiling"))
    for row in rows:
        figure, ceiling = measured(valgrind, pairs, row["pair"]), float(row["ceiling"])
        above += figure > ceiling
        print("%-10s %12.1f %8.0f%s" % (row["pair"], figure, ceiling,
                                        "  ABOVE" if figure > ceiling else ""))
    if not rows:
        sys.exit("no ceilings in %s" % ceilings)
    sys.exit(1 if above else 0)


main(*sys.argv[1:])
