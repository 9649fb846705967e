"""The examples of README.md are tests/install/example.c and example.cpp, which are built and run as tests; what
README.md shows of fragtest is in docs/results/h200/default.txt, word for word. In every page of the root and of docs/,
links to files of the tree lead to a file and to a heading of it, and the test programs that the page names exist.

usage: readme.py ROOT
"""
import glob
import os
import re
import sys

import sources

EXAMPLES = {"c": "tests/install/example.c", "cpp": "tests/install/example.cpp"}
SHOWN = "docs/results/h200/default.txt"


def shown_faults(root, readme):
    """Every paragraph of the first plain block must stand in the output that was kept."""
    block = re.search(r"^```\n(.*?)^```$", readme, re.DOTALL | re.M).group(1)
    kept = "\n".join(line.rstrip() for line in sources.text(root, SHOWN).splitlines())
    return ["README.md: not in %s: %s..." % (SHOWN, part.strip()[:60])
            for part in block.split("\n\n") if part.strip() not in kept]


def anchors(text):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_faults(root, page):
    folder = os.path.dirname(page)
    for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", sources.text(root, page)):
        target = os.path.normpath(os.path.join(folder, link)) if link else page
        if "://" in link:
            continue
        if not os.path.exists(os.path.join(root, target)):
            yield "%s: link to %s, which is missing" % (page, link)
        elif anchor and anchor not in anchors(sources.text(root, target)):
            yield "%s: link to %s#%s, which is no heading there" % (page, link, anchor)


def test_faults(root, page):
    """`test_name` is tests/PART/test_name.c, whatever of it is meant."""
    names = set(re.findall(r"`(test_\w+)", sources.text(root, page)))
    return ["%s: there is no %s" % (page, name) for name in sorted(names)
            if not glob.glob(os.path.join(root, "tests", "**", name + ".*"), recursive=True)]


def main(root):
    if not os.path.exists(os.path.join(root, "README.md")):
        sources.finish("readme", 1, ["README.md: missing"])
    readme = sources.text(root, "README.md")
    pages = sources.files(root, folders=("docs",), endings=(".md",), top=True)
    faults = shown_faults(root, readme)
    for page in pages:
        faults += [*link_faults(root, page), *test_faults(root, page)]
    for language, example in EXAMPLES.items():
        blocks = re.findall(r"^```%s\n(.*?)^```$" % language, readme, re.DOTALL | re.M)
        if sources.text(root, example) not in blocks:
            faults.append("README.md: none of its %d blocks ```%s is %s" % (len(blocks), language, example))
    sources.finish("readme", len(pages), faults)


main(sys.argv[1])
