"""The C example of README.md is tests/install/example.c, which is built and run as a test; what it
shows of fragtest is in docs/h200/default.txt, word for word. Links of README.md and docs/*.md lead somewhere, and
the programs of tests that they name are there.

usage: readme.py ROOT
"""
import glob
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


def link_faults(root, page):
    folder = os.path.dirname(os.path.join(root, page))
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", sources.text(root, page))
    return ["%s: link to %s, which is missing" % (page, link) for link in links
            if "://" not in link and not os.path.exists(os.path.join(folder, link))]


def test_faults(root, page):
    """`test_name` is tests/PART/test_name.c, whatever of it is meant."""
    names = set(re.findall(r"`(test_\w+)", sources.text(root, page)))
    return ["%s: there is no %s" % (page, name) for name in sorted(names)
            if not glob.glob(os.path.join(root, "tests", "**", name + ".*"), recursive=True)]


def main(root):
    if not os.path.exists(os.path.join(root, "README.md")):
        sources.finish("readme", 1, ["README.md: missing"])
    readme = sources.text(root, "README.md")
    blocks = re.findall(r"^```c\n(.*?)^```$", readme, re.DOTALL | re.M)
    example = sources.text(root, EXAMPLE)
    pages = ["README.md"] + ["docs/" + os.path.basename(page)
                             for page in sorted(glob.glob(os.path.join(root, "docs", "*.md")))]
    faults = shown_faults(root, readme)
    for page in pages:
        faults += link_faults(root, page) + test_faults(root, page)
    if example not in blocks:
        faults.append("README.md: none of its %d blocks ```c is %s" % (len(blocks), EXAMPLE))
    sources.finish("readme", len(pages), faults)


main(sys.argv[1])
