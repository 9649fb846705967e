"""The comment at the head of each header in src/ says what the file owns, which files may call it, and which locks it
takes or expects. Where a head lists the files of its folder, it lists every source, and no file that is missing.

usage: heads.py ROOT
"""
import os
import re
import sys

import sources

STATED = (("Owns", r"\bOwns\b"), ("May be called by, or May be included by", r"May be (called|included) by: "),
          ("Locks", r"\bLocks\b"))
LISTED = re.compile(r"^ \*   (\w+\.[ch])  +\S", re.M)


def head_faults(root, path):
    code = sources.text(root, path)
    head = code[:code.index("#")]
    for what, pattern in STATED:
        if not re.search(pattern, head):
            yield "%s: its head does not say: %s" % (path, what)
    listed = set(LISTED.findall(head))
    if listed:
        folder = os.path.dirname(path)
        names = {name for name in os.listdir(os.path.join(root, folder)) if name.endswith(sources.C_ENDINGS)}
        yield from ("%s: its head lists %s, which is missing" % (path, name) for name in sorted(listed - names))
        yield from ("%s: its head does not list %s" % (path, name)
                    for name in sorted(names - listed) if name.endswith(".c"))


def main(root):
    paths = sources.files(root, folders=("src",), endings=(".h",))
    sources.finish("heads", len(paths), [fault for path in paths for fault in head_faults(root, path)])


if __name__ == "__main__":
    main(sys.argv[1])
