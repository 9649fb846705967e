"""Functions of at most 60 lines between their braces, and lines of C and Python of at most 120 columns.

usage: sizes.py ROOT

A function of C is found by its braces, which clang-format puts on lines of their own. clang-format wraps C at 100
columns, and leaves its comments as they are.
"""
import ast
import re
import sys

import sources

FUNCTION_LINES = 60
COLUMNS = 120
FOLDERS = ("include", "src", "tests", "bench", "tools")
ENDINGS = sources.C_ENDINGS + (".py",)


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
        else:
            found = list(c_functions(sources.without_comments(code).splitlines()))
        functions += len(found)
        faults += ["%s:%d: function of %d lines, at most %d" % (path, start, size, FUNCTION_LINES)
                   for start, size in found if size > FUNCTION_LINES]
        faults += ["%s:%d: %d columns, at most %d" % (path, number, len(line), COLUMNS)
                   for number, line in enumerate(code.splitlines(), 1) if len(line) > COLUMNS]
    sources.finish("sizes", functions, faults)


if __name__ == "__main__":
    main(sys.argv[1])
