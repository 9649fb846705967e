"""The C example of README.md is tests/install/example.c, which is built and run as a test.

usage: readme.py ROOT
"""
import os
import re
import sys

import sources

EXAMPLE = "tests/install/example.c"


def main(root):
    if not os.path.exists(os.path.join(root, "README.md")):
        sources.finish("readme", 1, ["README.md: missing"])
    blocks = re.findall(r"^```c\n(.*?)^```$", sources.text(root, "README.md"), re.DOTALL | re.M)
    example = sources.text(root, EXAMPLE)
    faults = []
    if example not in blocks:
        faults.append("README.md: none of its %d blocks ```c is %s" % (len(blocks), EXAMPLE))
    sources.finish("readme", 1, faults)


main(sys.argv[1])
