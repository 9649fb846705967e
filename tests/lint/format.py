"""Every C and C++ file is as clang-format 14 writes it. Other versions disagree in places,
so with them the check is skipped.

usage: format.py ROOT CLANG_FORMAT
"""
import re
import subprocess
import sys

import sources

VERSION = 14
SKIPPED = 77


def version(clang_format):
    try:
        said = subprocess.run([clang_format, "--version"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r"version (\d+)", said)
    return int(match.group(1)) if match else 0


def main(root, clang_format):
    if version(clang_format) != VERSION:
        print("skipped: this needs clang-format %d" % VERSION)
        sys.exit(SKIPPED)
    paths = sources.files(root)
    if not paths:
        sources.finish("format", 0, [])
    result = subprocess.run([clang_format, "--dry-run", "-Werror", *paths], cwd=root, text=True,
                            stderr=subprocess.PIPE, check=False)
    places = [line.split(":")[:2] for line in result.stderr.splitlines() if " error: " in line]
    first_lines = {path: line for path, line in reversed(places)}
    faults = ["%s:%s: not as clang-format writes it" % place for place in first_lines.items()]
    if result.returncode != 0 and not faults:
        faults = [result.stderr]
    sources.finish("format", len(paths), faults)


main(*sys.argv[1:])
