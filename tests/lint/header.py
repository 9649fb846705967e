"""Public headers stand alone: as C11 (those of C) and C++17, without a warning, in pedantic mode.

usage: header.py ROOT CC CXX
"""
import os
import subprocess
import sys

import sources

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]


def compile_alone(command, include_dir, source):
    """Compiles a file of two includes of the header: it must also debug itself."""
    command = command + WARNINGS + ["-I", include_dir, "-fsyntax-only", "-"]
    return subprocess.run(command, input=source, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def main(root, c_compiler, cxx_compiler):
    include_dir = os.path.join(root, "include")
    headers = sources.files(root, folders=("include",))
    faults = []
    for header in headers:
        line = '#include "%s"\n' % os.path.relpath(header, "include")
        commands = [[cxx_compiler, "-std=c++17", "-x", "c++"]]
        if header.endswith(".h"):
            commands.append([c_compiler, "-std=c11", "-x", "c"])
        for command in commands:
            result = compile_alone(command, include_dir, line + line)
            if result.returncode != 0:
                faults.append("%s: %s\n%s" % (header, " ".join(command), result.stdout))
    sources.finish("header", len(headers), faults)


main(*sys.argv[1:])
