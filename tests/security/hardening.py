"""Checks that the built library has the hardening that the build asks for.

usage: hardening.py READELF LIBRARY MACHINE [checked]    checked: calls of string functions use _FORTIFY_SOURCE

MACHINE is CMake's name of the processor. -fstack-clash-protection leaves no trace in a library, so it is not checked.
"""
import re
import subprocess
import sys

# The first instruction of a function that may be called indirectly: endbr64; or bti c, paciasp, pacibsp.
LANDINGS = {"x86_64": ("f30f1efa",), "aarch64": ("5f2403d5", "3f2303d5", "7f2303d5")}


def output(readelf, library, *options):
    return subprocess.run([readelf, "-W", *options, library], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def header_faults(headers):
    if "GNU_RELRO" not in headers:
        yield "no GNU_RELRO: address tables stay writable"
    stack = re.search(r"GNU_STACK.*", headers)
    if stack is None or re.search(r"\bR?W?E\b", stack.group(0)):
        yield "the stack is executable"
    for line in re.findall(r"^ +LOAD .*", headers, re.M):
        if re.search(r" RWE ", line):
            yield "a segment is writable and executable: " + line.strip()


def dynamic_faults(dynamic):
    if not re.search(r"BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "no BIND_NOW: functions are resolved lazily, so their table stays writable"
    for word in ("TEXTREL", "RPATH", "RUNPATH"):
        if re.search(r"\(%s\)" % word, dynamic):
            yield word


def sections(readelf, library):
    """Yields (first address, offset in the file, bytes) of each section with contents."""
    pattern = r"\[ *\d+\] \S+ +PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)"
    return [tuple(int(part, 16) for part in found)
            for found in re.findall(pattern, output(readelf, library, "-S"))]


def landing_faults(readelf, library, wanted):
    """Exported functions are called through pointers, so each must begin with a landing."""
    with open(library, "rb") as file:
        content = file.read()
    places = sections(readelf, library)
    functions = re.findall(r"([0-9a-f]+) +\d+ FUNC +GLOBAL DEFAULT +\d+ (vmm_\w+)",
                           output(readelf, library, "--dyn-syms"))
    if not functions:
        yield "no exported functions found"
    for text, name in functions:
        address = int(text, 16)
        offset = next(address - first + at for first, at, size in places
                      if first <= address < first + size)
        if content[offset:offset + 4].hex() not in wanted:
            yield "%s does not begin with a landing instruction for indirect branches" % name


def symbol_faults(symbols, is_checked):
    if "__stack_chk_fail" not in symbols:
        yield "no -fstack-protector"
    if is_checked and not re.search(r"\b__\w+_chk@", symbols):
        yield "no _FORTIFY_SOURCE"


def main(readelf, library, machine, checked=""):
    faults = [*header_faults(output(readelf, library, "-l")),
              *dynamic_faults(output(readelf, library, "-d")),
              *symbol_faults(output(readelf, library, "--dyn-syms"), checked == "checked")]
    if machine in LANDINGS:
        faults += landing_faults(readelf, library, LANDINGS[machine])
    for fault in faults:
        print("%s: %s" % (library, fault))
    print("hardening: %d faults" % len(faults))
    sys.exit(1 if faults else 0)


main(*sys.argv[1:])
