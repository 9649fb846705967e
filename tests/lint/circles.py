"""Circles of includes in src/: between headers, between modules (a .c and its .h), between folders.

usage: circles.py ROOT

Files that include each other cannot be understood one at a time. Headers have no circles. The other circles that exist
are listed below with a reason; a new one is a fault, and so is an entry that no longer applies.
"""
import os
import re
import sys

import sources

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ALLOWED = {
    "headers": {},
    "modules": {
        ("lane/directory", "lane/heap", "lane/listener", "lane/views"):
            "blocks are found by address in the directory, change in heaps, and may lie in views; listeners hear of it",
        ("lane/lane", "lane/magazine"):
            "a lane keeps freed blocks in its magazines, and takes them back from there",
        ("cache/compact/compact", "cache/idle/trim"):
            "compaction trims what it has emptied, and a trim compacts where live bytes pin memory",
        ("debug/debug_mode", "debug/internal", "debug/misuse"):
            "internal.h belongs to all files of debug mode",
        ("driver/sim/internal", "driver/sim/sim"):
            "internal.h belongs to all files of the sim driver",
    },
    "folders": {
        ("cache/compact", "cache/idle", "cache/pool"):
            "a sleep and a compaction trim; a trim compacts, and lets pools leave whose work has finished",
    },
}


def groups_of(edges):
    """Sets of nodes that reach each other. edges: node -> nodes that it needs."""
    reached = {}
    for node in edges:
        found, open_nodes = set(), [node]
        while open_nodes:
            for below in edges.get(open_nodes.pop(), ()):
                if below not in found:
                    found.add(below)
                    open_nodes.append(below)
        reached[node] = found
    groups = {frozenset(other for other in reached[node] if node in reached.get(other, ())) for node in edges}
    return sorted((tuple(sorted(group)) for group in groups if group))


def edges_of(root, paths):
    edges = {"headers": {}, "modules": {}, "folders": {}}

    def add(kind, user, used, is_own_circle=False):
        if user != used or is_own_circle:
            edges[kind].setdefault(user, set()).add(used)

    for path in paths:
        below = path[len("src/"):]
        for name in INCLUDE.findall(sources.text(root, path)):
            if not os.path.isfile(os.path.join(root, "src", name)):
                continue
            if below.endswith(".h"):
                add("headers", below, name, is_own_circle=True)
            add("modules", os.path.splitext(below)[0], os.path.splitext(name)[0])
            add("folders", os.path.dirname(below), os.path.dirname(name))
    return edges


def faults_of(kind, groups, allowed):
    for group in groups:
        if not any(set(group) <= set(known) for known in allowed):
            yield "%s include each other: %s" % (kind, ", ".join(group))
    for known in allowed:
        if not any(set(group) <= set(known) for group in groups):
            yield "%s no longer include each other, so circles.py must not allow it: %s" % (kind, ", ".join(known))


def main(root):
    paths = sources.files(root, folders=("src",))
    faults = []
    for kind, edges in edges_of(root, paths).items():
        faults += faults_of(kind, groups_of(edges), ALLOWED[kind])
    sources.finish("circles", len(paths), faults)


if __name__ == "__main__":
    main(sys.argv[1])
