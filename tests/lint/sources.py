"""Which files of the project the checks look at, and how they report."""
import os
import re
import sys

FOLDERS = ("include", "src", "tests", "bench", "docs", "tools")
C_ENDINGS = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")
TEXT_ENDINGS = C_ENDINGS + (".py", ".sh", ".cmake", ".in", ".txt", ".md", ".json", ".yml")


def files(root, folders=FOLDERS, endings=C_ENDINGS, top=False):
    """Paths relative to root, sorted; with top also the files that lie in the root itself."""
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(root, folder)):
            found += [os.path.join(where, name) for name in names]
    if top:
        found += [os.path.join(root, name) for name in os.listdir(root)]
    found = [os.path.relpath(path, root) for path in found
             if path.endswith(endings) and os.path.isfile(path)]
    return sorted(found)


def text(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def without_comments(code):
    """C code with comments and string literals blanked, line numbers kept."""
    def blank(match):
        found = match.group(0)
        if found.startswith(('"', "'")):
            return found[0] * 2
        return " " + "\n" * found.count("\n")
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, blank, code, flags=re.DOTALL)


def finish(what, looked_at, faults):
    """Ends the check: 1 if there are faults, or if nothing was looked at."""
    for fault in faults:
        print(fault)
    if not looked_at:
        print(what + ": nothing to look at, which is a fault of the check")
        sys.exit(1)
    print("%s: %d looked at, %d faults" % (what, looked_at, len(faults)))
    sys.exit(1 if faults else 0)
