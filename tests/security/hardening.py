"""What the linker and the compiler were asked to do is in the built library.

usage: hardening.py READELF LIBRARY MACHINE [checked]    checked: copies are, by _FORTIFY_SOURCE

MACHINE is CMake's word for the processor. What cannot be told from a library: -fstack-clash-protection.
"""
import re
import subprocess
import sys

# What a function that may be called indirectly begins with: endbr64; or bti c, paciasp, pacibsp.
LANDINGS = {"x86_64": ("f30f1efa",), "aarch64": ("5f2403d5", "3f2303d5", "7f2303d5")}


def output(readelf, library, *options):
    return subprocess.run([readelf, "-W", *options, library], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def header_faults(headers):
    if "GNU_RELRO" not in headers:
        yield "no GNU_RELRO: tables of addresses stay writable"
    stack = re.search(r"GNU_STACK.*", headers)
    if stack is None or re.search(r"\bR?W?E\b", stack.group(0)):
        yield "the stack may be executed"
    for line in re.findall(r"^ +LOAD .*", headers, re.M):
        if re.search(r" RWE ", line):
            yield "a segment is writable and executable: " + line.strip()


def dynamic_faults(dynamic):
    if not re.search(r"BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "no BIND_NOW: addresses of functions are looked up, and written, later"
    for word in ("TEXTREL", "RPATH", "RUNPATH"):
        if re.search(r"\(%s\)" % word, dynamic):
            yield word


def sections(readelf, library):
    """(first address, offset in the file, bytes) of each section that has both."""
    pattern = r"\[ *\d+\] \S+ +PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)"
    return [tuple(int(part, 16) for part in found)
            for found in re.findall(pattern, output(readelf, library, "-S"))]


def landing_faults(readelf, library, wanted):
    """Exported functions are called through pointers of whoever loads the library."""
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
            yield "%s does not begin with a landing for indirect branches" % name


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
