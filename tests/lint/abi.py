"""The ABI of a shared library is the one that a file of tests/abi lists.

usage: abi.py FILE LIBRARY CC NM READELF INCLUDE HEADER [SOURCE.cpp...] [--update]

--update writes the file. HEADER is the library's public header; a SOURCE defines functions with `extern "C" VMM_API`
that no C header can declare. The file has a line for each fact: the soname; each exported symbol and its version; and
of the header each constant, enumeration and its values, structure and its fields, named type and function. Offsets and
values are what the compiler says. abidiff of libabigail compares more, but its list (abidw) numbers types instead of
naming them and differs between compilers, so a change of it cannot be reviewed.
"""
import os
import re
import subprocess
import sys
import tempfile

import sources

LIST_IT = "list it: cmake --build BUILD --target update_abi"
COMPATIBLE = "old programs keep running; " + LIST_IT
NEW_SONAME = "the soname is new, so old programs do not load it; " + LIST_IT
BREAKS = ("breaks programs of this soname; add fields only at the end of a structure with struct_size, else raise "
          "VMM_VERSION_MINOR, which is part of the soname; if this version is not released yet, " + LIST_IT)

ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
CONSTANT = re.compile(r"^#define (VMM_(?!VERSION_)\w+) +([^\s(]+)$", re.M)
TAGGED = re.compile(r"typedef (struct|enum) (\w+) \{([^{}]*)\} \2 ?;")
CALLBACK = re.compile(r"typedef ([^()]+)\(\*(\w+)\)\(([^()]*)\)$")
ALIAS = re.compile(r"typedef ([^()\[\]]*[ *])(\w+)$")
FUNCTION = re.compile(r"(?:extern )?([\w *]*[ *])(vmm_\w+) ?\(([^()]*)\)$")
FIELD = re.compile(r"([\w *]*[ *])(\w+)(?:\[\d+\])?$")
DEFINED_IN_CXX = re.compile(r'^extern "C" VMM_API ([\w *]*[ *])(vmm_\w+)\(([^()]*)\)$', re.M)
USING = re.compile(r"^using (\w+) = ([^;]+);", re.M)


def output(*command, text=None):
    return subprocess.run(command, check=True, text=True, input=text, stdout=subprocess.PIPE).stdout


def understood(pattern, text):
    match = pattern.match(text)
    if not match:
        sys.exit("abi: cannot read '%s'; tests/lint/abi.py must learn it" % text)
    return match


def declarations(cc, include, header):
    """What the header itself declares, as one line without comments, macros and attributes."""
    lines, own = [], False
    for line in output(cc, "-E", "-std=c11", "-I", include, header).splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = os.path.basename(marker.group(1)) == os.path.basename(header)
        elif own:
            lines.append(line)
    text = ATTRIBUTE.sub("", " ".join(lines))
    return re.sub(r"\s+", " ", text).strip()


def types_of(parameters):
    """"vmm_cache *cache, size_t bytes" becomes "vmm_cache *, size_t"."""
    names = [re.sub(r"(?<=[ *])\w+$", "", part.strip()).strip() for part in parameters.split(",")]
    return ", ".join(names)


def facts_of_declarations(text):
    """Yields (fact, text) and (fact, format, expressions); a program prints the latter."""
    for kind, name, body in TAGGED.findall(text):
        yield "%s %s" % (kind, name), "%zu bytes", ["sizeof(%s)" % name]
        for part in filter(None, map(str.strip, body.split("," if kind == "enum" else ";"))):
            if kind == "enum":
                value = part.split("=")[0].strip()
                yield "enum %s %s" % (name, value), "%lld", ["(long long)" + value]
            else:
                field_type, field = understood(FIELD, part).groups()
                yield ("struct %s.%s" % (name, field), "offset %zu, %zu bytes, " + field_type.strip(),
                       ["offsetof(%s, %s)" % (name, field), "sizeof(((%s *)0)->%s)" % (name, field)])
    for part in filter(None, map(str.strip, TAGGED.sub("", text).split(";"))):
        if part.startswith("typedef"):
            match = CALLBACK.match(part)
            if match:
                yield "type " + match.group(2), "%s (*)(%s)" % (match.group(1).strip(), types_of(match.group(3)))
            else:
                match = understood(ALIAS, part)
                yield "type " + match.group(2), match.group(1).strip()
        else:
            returns, name, parameters = understood(FUNCTION, part).groups()
            yield "function " + name, "%s (%s)" % (returns.strip(), types_of(parameters))


def measure(cc, include, header, wanted):
    """Replaces the expressions of facts by what a program prints for them."""
    plain = {key: rest[0] for key, *rest in wanted if len(rest) == 1}
    measured = [(key, *rest) for key, *rest in wanted if len(rest) == 2]
    prints = "".join('printf("%s\\n", %s);\n' % (form, ", ".join(what)) for _, form, what in measured)
    code = '#include "%s"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n%s}\n' % (header, prints)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "measure")
        output(cc, "-std=c11", "-I", include, "-x", "c", "-", "-o", program, text=code)
        values = output(program).splitlines()
    plain.update(zip([key for key, *_ in measured], values))
    return {key: plain[key] for key, *_ in wanted}


def header_facts(cc, include, header):
    header = os.path.abspath(header)
    wanted = list(facts_of_declarations(declarations(cc, include, header)))
    wanted += [("constant " + name, "%llu", ["0ull + " + value])
               for name, value in CONSTANT.findall(sources.text("", header))]
    return measure(cc, include, header, wanted)


def cxx_facts(path):
    code = sources.text("", path)
    for returns, name, parameters in DEFINED_IN_CXX.findall(code):
        yield "function " + name, "%s (%s)" % (returns.strip(), types_of(parameters))
        yield from (("type " + alias, meaning) for alias, meaning in USING.findall(code)
                    if re.search(r"\b%s\b" % alias, parameters))


def library_facts(library, nm, readelf):
    soname = re.search(r"SONAME.*\[(.*)\]", output(readelf, "-W", "-d", library))
    yield "soname", soname.group(1) if soname else "none"
    for line in output(nm, "-D", "--defined-only", library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield "symbol " + name, version.lstrip("@") or "unversioned"


def ordered(facts):
    """By kind and name. Fields and values stay in the order of the header."""
    return dict(sorted(facts.items(), key=lambda fact: re.match(r"\w+ ?\w*", fact[0]).group(0)))


def number(fact):
    return int(re.search(r"\d+", fact).group(0))


def is_safe_field(key, old, new):
    """Whether the library can tell by struct_size that an old program does not know the field."""
    structure = key.partition(".")[0]
    return structure not in old or (structure + ".struct_size" in old and number(new[key]) >= number(old[structure]))


def compare(old, new):
    """Yields (what differs, whether programs built with the old ABI may break)."""
    fields = {key.partition(".")[0] for key in old.keys() | new.keys()
              if "." in key and old.get(key) != new.get(key)}
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new:
            yield "removed: %s (%s)" % (key, old[key]), True
        elif key not in old:
            yield "added: %s (%s)" % (key, new[key]), "." in key and not is_safe_field(key, old, new)
        elif old[key] != new[key] and key not in fields:
            yield "changed: %s: was %s, is %s" % (key, old[key], new[key]), True


def differences(old, new):
    """A line for each difference: what it is, and what to do."""
    is_new = old.get("soname") != new.get("soname")
    return ["%s: %s" % (what, NEW_SONAME if is_new else BREAKS if breaks else COMPATIBLE)
            for what, breaks in compare(old, new)]


def read(path):
    if not os.path.exists(path):
        return {}
    lines = sources.text("", path).splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


def write(path, facts):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Written by tests/lint/abi.py, which says what this is; CONTRIBUTING.md says when to write it.\n")
        file.writelines("%s: %s\n" % fact for fact in facts.items())


def main(path, library, cc, nm, readelf, include, header, *rest):
    facts = {**dict(library_facts(library, nm, readelf)), **header_facts(cc, include, header)}
    for source in rest:
        if source != "--update":
            facts.update(cxx_facts(source))
    facts = ordered(facts)
    faults = ["%s: %s" % (os.path.basename(path), line) for line in differences(read(path), facts)]
    if "--update" in rest:
        write(path, facts)
        print("\n".join(faults) or "no difference")
        sys.exit(0)
    sources.finish("abi", len(facts), faults)


if __name__ == "__main__":
    main(*sys.argv[1:])
