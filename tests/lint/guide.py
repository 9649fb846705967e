"""The C of docs/guide.md is part of the programs in tests/guide, which are built and run as tests.

In a program, a part stands between the lines /* [name] */ and /* [end] */. In the guide it stands in a block ```c below
the comment <!-- PROGRAM [name] -->. Every part is shown once, every block ```c is a part, and the guide links to every
program.

usage: guide.py ROOT [--write]      --write: copy the parts into the guide first
"""
import os
import re
import sys
import textwrap

import sources

GUIDE = "docs/guide.md"
PROGRAMS = "tests/guide"
PART = re.compile(r"^ */\* \[(?!end\])(\w+)\] \*/\n(.*?)^ */\* \[end\] \*/$", re.DOTALL | re.M)
SHOWN = re.compile(r"^<!-- (\w+\.c) \[(\w+)\] -->\n```c\n(.*?)^```$", re.DOTALL | re.M)


def parts_of(root):
    """The text of each part by (program, name)."""
    parts = {}
    for path in sources.files(root, folders=(PROGRAMS,), endings=(".c",)):
        for name, text in PART.findall(sources.text(root, path)):
            parts[os.path.basename(path), name] = textwrap.dedent(text)
    return parts


def write(root, guide, parts):
    def block(match):
        text = parts.get(match.group(1, 2), match.group(3))
        return "<!-- %s [%s] -->\n```c\n%s```" % (*match.group(1, 2), text)
    guide = SHOWN.sub(block, guide)
    with open(os.path.join(root, GUIDE), "w", encoding="utf-8") as file:
        file.write(guide)
    return guide


def main(root, *flags):
    parts = parts_of(root)
    guide = sources.text(root, GUIDE)
    if flags == ("--write",):
        guide = write(root, guide, parts)
    shown = [(key, text) for *key, text in SHOWN.findall(guide)]
    keys = [tuple(key) for key, _ in shown]
    faults = ["%s: %s [%s] is shown %d times" % (GUIDE, *key, keys.count(key))
              for key in parts if keys.count(key) != 1]
    faults += ["%s: %s [%s] differs from the program, or is not in it" % (GUIDE, *key)
               for key, text in shown if parts.get(tuple(key)) != text]
    faults += ["%s: no link to %s" % (GUIDE, program)
               for program in sorted({program for program, _ in parts})
               if "](../%s/%s)" % (PROGRAMS, program) not in guide]
    if len(re.findall(r"^```c\n", guide, re.M)) != len(shown):
        faults.append("%s: a block ```c does not name its program" % GUIDE)
    sources.finish("guide", len(shown), faults)


main(*sys.argv[1:])
