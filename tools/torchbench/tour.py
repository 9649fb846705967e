#!/usr/bin/env python3
"""Shows under libvmmcache what guides to PyTorch's memory teach: runs the programs of tour/, each in a process of its
own.

usage: tour.py [OUT.json]        needs VMMCACHE_LIBRARY
       tour.py --splice OUT.json DOCUMENT

Prints every program's output, and writes programs and outputs to OUT.json. With --splice, they replace the regions
`tour NAME` of a document; of long programs, which the document links to, only the output does. Exits with 1 if a
program fails.
"""
import ast
import json
import os
import re
import subprocess
import sys

import allocators
from places import placeless
from documents import code, replace_region

HERE = os.path.dirname(os.path.abspath(__file__))

# In the order of the document.
PROGRAMS = ("tour/allocated", "tour/summary", "tour/no_caching", "tour/leak",
            "tour/nvidia_smi", "oom", "tour/snapshot")
LINKED = ("nvidia_smi", "snapshot")
MOST_SECONDS = 120


def program_read(name):
    with open(os.path.join(HERE, name + ".py"), encoding="utf-8") as file:
        program = file.read()
    docstring = ast.get_docstring(ast.parse(program))
    variables = dict(re.findall(r"^environment: (\w+)=(\S+)$", docstring, re.MULTILINE))
    return program, docstring.splitlines()[0], variables


def run_program(name, folder):
    """Runs a program: its code, output and exit status."""
    program, title, variables = program_read(name)
    env = allocators.environment(allocators.OURS, TOUR_OUT=folder, **variables)
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, name + ".py")], env=env, text=True,
                              capture_output=True, timeout=MOST_SECONDS, check=False)
        status, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        status, output, errors = "no end", str(error.stdout or ""), str(error.stderr or "")
    return {"title": title, "code": program, "environment": variables, "status": status, "output": placeless(output),
            "errors": errors[-3000:]}


def run(path):
    folder = os.path.dirname(os.path.abspath(path)) if path else ""
    found, failed = {}, False
    for name in PROGRAMS:
        part = found[os.path.basename(name)] = run_program(name, folder)
        print("== %s (%s): status %s" % (part["title"], name, part["status"]))
        print(part["output"])
        if part["status"] != 0:
            failed = True
            print(part["errors"])
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    sys.exit(int(failed))


def lines_of(name, part):
    """A program without its docstring, unless it is only linked to, and its output."""
    variables = "".join("%s=%s " % pair for pair in part["environment"].items())
    if name not in LINKED:
        yield from code(part["code"].split('"""', 2)[2].strip("\n").splitlines(), "python")
        yield ""
    yield from code(["$ %spython %s.py" % (variables, name), *part["output"].rstrip("\n").splitlines()])


def splice(path, document):
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    with open(document, encoding="utf-8") as file:
        text = file.read()
    for name, part in found.items():
        text = replace_region(text, "tour " + name, "tools/torchbench/tour.py", lines_of(name, part))
    with open(document, "w", encoding="utf-8") as file:
        file.write(text)


if sys.argv[1:2] == ["--splice"] and len(sys.argv) == 4:
    splice(*sys.argv[2:])
elif len(sys.argv) <= 2 and not sys.argv[-1].startswith("-"):
    run(sys.argv[1] if len(sys.argv) == 2 else None)
else:
    sys.exit(__doc__.split("\n\n")[1])
