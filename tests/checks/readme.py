"""The C example of README.md is tests/install/example.c, which is built and run as a test; what it
shows of fragtest is in docs/h200/default.txt, word for word; its links lead somewhere.

usage: readme.py ROOT
"""
import os
import re
import sys

import sources

EXAMPLE = "tests/install/example.c"
SHOWN = "docs/h200/default.txt"


def shown_faults(root, readme):
    """Every paragraph of the first plain block must stand in the output that was kept."""
    block = re.search(r"^```\n(.*?)^```$", readme, re.DOTALL | re.M).group(1)
    kept = "\n".join(line.rstrip() for line in sources.text(root, SHOWN).splitlines())
    return ["README.md: not in %s: %s..." % (SHOWN, part.strip()[:60])
            for part in block.split("\n\n") if part.strip() not in kept]


def link_faults(root, readme):
    return ["README.md: link to %s, which is missing" % link
            for link in re.findall(r"\]\(([^)]+)\)", readme)
            if "://" not in link and not os.path.exists(os.path.join(root, link))]


def gap_faults(root, readme):
    return ["README.md: %s was never filled in" % gap for gap in re.findall(r"@[A-Z]+@", readme)]


def main(root):
    if not os.path.exists(os.path.join(root, "README.md")):
        sources.finish("readme", 1, ["README.md: missing"])
    readme = sources.text(root, "README.md")
    blocks = re.findall(r"^```c\n(.*?)^```$", readme, re.DOTALL | re.M)
    example = sources.text(root, EXAMPLE)
    faults = shown_faults(root, readme) + link_faults(root, readme)
    if example not in blocks:
        faults.append("README.md: none of its %d blocks ```c is %s" % (len(blocks), EXAMPLE))
    sources.finish("readme", 1, faults)


main(sys.argv[1])
