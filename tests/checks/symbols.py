"""What the shared library gives and takes.

usage: symbols.py exports NM LIBRARY SOURCE...   it exports the functions marked VMM_API, exactly
       symbols.py imports NM LIBRARY             it cannot end the process or print to standard output
"""
import re
import subprocess
import sys

import sources

# glibc's checked forms (__printf_chk) count as the plain ones.
FORBIDDEN = {"abort", "exit", "_exit", "_Exit", "quick_exit", "__assert_fail", "__assert",
             "__assert_perror_fail", "raise", "kill", "err", "errx", "error", "perror", "printf",
             "vprintf", "puts", "putchar", "stdout"}


def symbols(nm, library, *flags):
    lines = subprocess.run([nm, "-D", *flags, library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def exports(nm, library, *promising):
    code = "".join(sources.without_comments(sources.text(".", path)) for path in promising)
    promised = set(re.findall(r"\bVMM_API\b[^;#]*?\b(vmm_\w+)\s*\(", code))
    exported = symbols(nm, library, "--defined-only")
    faults = ["%s: promised, not exported" % name for name in promised - exported]
    faults += ["%s: exported, not promised" % name for name in exported - promised]
    sources.finish("exports", len(promised), sorted(faults))


def imports(nm, library):
    taken = symbols(nm, library, "--undefined-only")
    faults = [name for name in sorted(taken)
              if re.sub(r"^__(\w+)_chk$", r"\1", name) in FORBIDDEN]
    sources.finish("imports", len(taken), ["%s: used by the library" % name for name in faults])


{"exports": exports, "imports": imports}[sys.argv[1]](*sys.argv[2:])
