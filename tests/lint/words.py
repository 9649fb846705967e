"""No promises in the tree: what is to be done later belongs to the issues.

usage: words.py ROOT
"""
import re
import sys

import sources

# Written in two halves, so that this file does not find itself.
PROMISES = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b",
                      re.IGNORECASE)


def main(root):
    paths = sources.files(root, endings=sources.TEXT_ENDINGS, top=True)
    faults = []
    for path in paths:
        for number, line in enumerate(sources.text(root, path).splitlines(), 1):
            match = PROMISES.search(line)
            if match:
                faults.append("%s:%d: '%s'" % (path, number, match.group(1)))
    sources.finish("words", len(paths), faults)


main(sys.argv[1])
