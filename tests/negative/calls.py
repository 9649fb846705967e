#!/usr/bin/env python3
"""Whether calls.h has every function of the public header that takes a cache or a pool first and returns a status.

usage: calls.py VMMCACHE_H CALLS_H
"""
import re
import sys

DECLARATION = re.compile(r"^VMM_API (?:VMM_NODISCARD )?vmm_status (vmm_\w+)\(vmm_(?:cache \*|pool \*)", re.M)
ROW = re.compile(r"^ +(?:FAST|CACHE|POOL)\((vmm_\w+),", re.M)
FEW = 50  # so that a change of either file's form is noticed


def names(pattern, path, without=()):
    with open(path, encoding="utf-8") as file:
        return sorted(set(pattern.findall(file.read())) - set(without))


def main(header, table):
    wanted = names(DECLARATION, header, ["vmm_destroy"])  # it accepts NULL, and works inside no call
    found = names(ROW, table)
    for name in wanted + found:
        if name not in wanted or name not in found:
            print("%s: only in %s" % (name, header if name in wanted else table))
    print("%d calls in the header, %d in the table" % (len(wanted), len(found)))
    return 0 if wanted == found and len(found) > FEW else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
