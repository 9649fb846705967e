"""A Python file imports only names that the file it names defines. Much of the Python imports PyTorch first, so without
a GPU no test runs these imports.

usage: python_imports.py ROOT

Covers `from MODULE import NAME` where MODULE is a file of the project: beside the importing file, in a folder above it,
relative to it, or in tools/pages, which other tools put in their path. Modules of others are left alone, and so is `*`.
"""
import ast
import functools
import os
import sys

import sources

FOLDERS = ("tests", "bench", "tools")
SHARED = "tools/pages"


def named(targets):
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def defined(body):
    """The names that statements define at the level of the module, and `*` if an import may define more."""
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= named(node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.For)):
            names |= named([node.target])
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody", "handlers"):
                names |= defined(getattr(node, part, []))
    return names


@functools.lru_cache(maxsize=None)
def names_of(root, module):
    """What a module defines."""
    return defined(ast.parse(sources.text(root, module)).body)


def module_path(root, path, node):
    """The file of the project that an import names; None: it is not the project's."""
    parts = node.module.split(".") if node.module else []
    folder = os.path.dirname(path)
    for _ in range(node.level - 1):
        folder = os.path.dirname(folder)
    while True:
        for end in (".py", "/__init__.py"):
            found = os.path.join(folder, *parts) + end
            if os.path.isfile(os.path.join(root, found)):
                return found
        if node.level > 0 or folder == SHARED:
            return None
        folder = os.path.dirname(folder) if folder else SHARED


def faults_of(root, path, tree):
    for node in ast.walk(tree):
        module = module_path(root, path, node) if isinstance(node, ast.ImportFrom) else None
        if module is None:
            continue
        names = names_of(root, module)
        beside = os.path.dirname(module) if module.endswith("/__init__.py") else None
        for alias in node.names:
            is_module = beside is not None and (
                os.path.exists(os.path.join(root, beside, alias.name + ".py")) or
                os.path.isdir(os.path.join(root, beside, alias.name)))
            if alias.name != "*" and not names & {"*", alias.name} and not is_module:
                yield "%s:%d: %s does not define %s" % (path, node.lineno, module, alias.name)


def main(root):
    faults, paths = [], sources.files(root, FOLDERS, (".py",))
    for path in paths:
        faults += faults_of(root, path, ast.parse(sources.text(root, path)))
    sources.finish("python_imports", len(paths), faults)


if __name__ == "__main__":
    main(sys.argv[1])
