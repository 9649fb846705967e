"""Functions of at most 60 lines between their braces.

usage: sizes.py ROOT

A function of C is found by its braces, which clang-format puts on lines of their own.
"""
import ast
import re
import sys

import sources

FUNCTION_LINES = 60
FOLDERS = ("src", "tests", "bench", "tools")
ENDINGS = sources.C_ENDINGS + (".py", ".sh", ".cmake", "CMakeLists.txt")


def c_functions(lines):
    """(line of the opening brace, lines of the body)"""
    opened = {}
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        before = lines[number - 2] if number > 1 else ""
        if line.strip() == "{" and before.rstrip().endswith((")", "const", "override", "noexcept")):
            opened[indent] = number
        elif re.match(r"\s*}[;,)]*\s*$", line) and indent in opened:
            start = opened.pop(indent)
            yield start, number - start - 1


def python_functions(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.end_lineno - node.lineno if hasattr(node, "end_lineno") else 0


def main(root):
    paths = sources.files(root, FOLDERS, ENDINGS)
    faults, functions = [], 0
    for path in paths:
        code = sources.text(root, path)
        if path.endswith(".py"):
            found = list(python_functions(code))
        elif path.endswith(sources.C_ENDINGS):
            found = list(c_functions(sources.without_comments(code).splitlines()))
        else:
            continue
        functions += len(found)
        faults += ["%s:%d: function of %d lines, at most %d" % (path, start, size, FUNCTION_LINES)
                   for start, size in found if size > FUNCTION_LINES]
    sources.finish("sizes", functions, faults)


main(sys.argv[1])
