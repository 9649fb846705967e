#!/usr/bin/env python3
"""Replays traces on the sim driver, and writes docs/results/metatrace.md.

usage: report.py FRAGTEST TRACE...
"""
import ast
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pages"))
from documents import document, measured, section, table  # noqa: E402
from replays import replay  # noqa: E402

ABOUT = """\
The settings of the library were chosen with [five traces](bars.md) of programs that ran on a GPU. The programs here
were recorded on PyTorch's meta device, whose tensors have sizes and lifetimes but no memory; each draws its sizes anew
in each step. The sim driver replays them with the times of an H200. One constant was chosen with them: without the
steps of 16 KiB in the sizes of blocks, `sessions` would need 1.156 times its live memory."""
LEAST = "*Least limit*: the smallest that a pass survives without moving a block, over peak live memory."
END = """\
Where libvmmcache needs more than 1.03 times the live memory, free bytes lie beside live blocks in one chunk: a view
joins the free end of one chunk with the free start of another, and takes only idle chunks between them. In `sessions`
they also lie in chunks of other streams.

## Commands
```sh
apt-get install g++ python3-torch libtorch-dev        # Debian 12
/usr/bin/python3 tools/metatrace/trace.py TRACES
python3 tools/metatrace/report.py build/release/bin/fragtest TRACES/*.trace.gz > docs/results/metatrace.md
```"""


def about(name):
    """What a program does, as programs.py says."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs.py"), encoding="utf-8") as file:
        known = {each.name: ast.get_docstring(each) for each in ast.parse(file.read()).body
                 if isinstance(each, ast.FunctionDef)}
    return known.get(name, "")


def by_policy(fragtest, trace, *options):
    return {policy: run for (_, policy), run in replay(fragtest, "--trace", trace, *options).items()}


def rows(fragtest, trace):
    """The program's row in each table. The name of a trace is NAME or NAME_SEED."""
    runs = by_policy(fragtest, trace, "--passes=3")
    native, expandable, ours = (runs[name] for name in ("block-splitting", "expandable", "vmmcache"))
    least = by_policy(fragtest, trace, "--policy=vmmcache", "--least")["vmmcache"]
    drawn = by_policy(fragtest, trace, "--policy=vmmcache", "--passes=21", "--jitter=10")["vmmcache"]
    live = ours["peak_live_mib"]
    later = drawn["driver_ms_per_pass"][1:]
    closeness = (ours["trace"], "%.1f GiB" % (live / 1024), "%.2f" % native["footprint"],
                 "%.2f" % expandable["footprint"], "**%.3f**" % ours["footprint"],
                 "%.3f" % (least["least_mib"] / live))
    times = (ours["trace"], *("%.0f" % run["driver_ms_per_pass"][0] for run in (native, expandable)),
             *("%.1f" % each for each in ours["driver_ms_per_pass"]), "%.1f" % (sum(later) / len(later)))
    what = ours["trace"], about(ours["trace"].rstrip("_0123456789"))
    return what, closeness, times


def main(fragtest, *traces):
    what, closeness, times = zip(*(rows(fragtest, trace) for trace in traces))
    written = "Written by `tools/metatrace/report.py`. Do not edit the tables by hand. Measured: %s." % measured()
    sys.stdout.write(document([section(
        "# Other programs than the five traces", written, ABOUT, table(["program", "what it does"], what, 2),
        "Peak reserved over peak live memory, three passes:",
        table(["program", "peak live", "PyTorch native", "expandable segments", "libvmmcache", "least limit"],
              closeness),
        LEAST, "Driver time in milliseconds:",
        table(["program", "native, first pass", "expandable, first", "first", "second", "third",
               "sizes within 10 %, mean of 20 passes"], times), END)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
