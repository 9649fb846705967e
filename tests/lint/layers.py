"""Floors of src/: each file uses its own floor and lower ones only.

usage: layers.py ROOT
"""
import re
import sys

import sources

FLOORS = ("base", "trace", "monitor", "neighbour", "driver", "vm", "lane", "cache", "debug", "api")
TORCH = len(FLOORS)  # sees of the library what its users see, base, and what api has for it
PRELOAD = TORCH + 1  # the same, and trace
TORCH_SEES = ("vmmcache/", "torch/", "base/", "api/create_trial.h", "api/find.h", "api/listen.h",
              "api/waits.h")
PRELOAD_SEES = ("vmmcache/", "preload/", "base/", "trace/", "api/find.h")
HOST_MEMORY = r"\b(malloc|calloc|realloc|reallocarray|free|strdup|strndup|posix_memalign|" \
              r"aligned_alloc|asprintf|vasprintf|getline)\s*\("


def floor_of(path):
    """The number of the floor that a path below src/ lies on; None for a folder that is no floor."""
    floor = path.split("/")[0]
    if floor == "torch":
        return TORCH
    if floor == "preload":
        return PRELOAD
    return FLOORS.index(floor) if floor in FLOORS else None


def include_faults(path, code):
    """path is relative to src/."""
    own = floor_of(path)
    if own is None:
        yield 1, "lies in a folder that is no floor"
        return
    is_cuda = path.startswith(("driver/cuda/", "preload/"))
    for number, line in enumerate(code.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if not match:
            continue
        name = match.group(1)
        if re.match(r"cuda", name.split("/")[-1]) and not is_cuda:
            yield number, "includes %s; only src/driver/cuda/ and src/preload/ may" % name
        if '"' not in line or name == "vmmcache/vmmcache.h":
            continue
        if own == TORCH:
            if not name.startswith(TORCH_SEES):
                yield number, "includes %s; torch sees %s only" % (name, ", ".join(TORCH_SEES))
            continue
        if own == PRELOAD:
            if not name.startswith(PRELOAD_SEES):
                yield number, "includes %s; preload sees %s only" % (name, ", ".join(PRELOAD_SEES))
            continue
        floor = floor_of(name)
        if floor is None:
            yield number, "includes %s, which lies on no floor" % name
        elif floor > own:
            yield number, "includes %s from a floor above" % name
        elif name.startswith("driver/") and own > FLOORS.index("driver") and name != "driver/driver.h":
            yield number, "includes %s; floors above driver see driver/driver.h only" % name


def call_faults(path, code):
    bare = sources.without_comments(code)
    for number, line in enumerate(bare.splitlines(), 1):
        match = re.search(HOST_MEMORY, line)
        if match and path != "base/hostmem.c":
            yield number, "calls %s(); host memory comes from base/hostmem.h" % match.group(1)
        match = re.search(r"\bvmm__driver_(\w+)\s*\(", line)
        if match and path.startswith("lane/") and not re.match(r"event|stream_wait", match.group(1)):
            yield number, "calls vmm__driver_%s(); lane may use events only" % match.group(1)
        if re.search(r"(->|\.)ops->\w+\s*\(", line) and not path.startswith("driver/"):
            yield number, "calls the driver's table; only src/driver/ may"


def main(root):
    paths = sources.files(root, folders=("src",))
    faults = []
    for path in paths:
        code = sources.text(root, path)
        below = path[len("src/"):]
        for number, fault in [*include_faults(below, code), *call_faults(below, code)]:
            faults.append("%s:%d: %s" % (path, number, fault))
    sources.finish("layers", len(paths), faults)


if __name__ == "__main__":
    main(sys.argv[1])
