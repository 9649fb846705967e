"""What the built library gives and takes.

usage: symbols.py exports NM LIBRARY SOURCE...   it exports the functions marked VMM_API, exactly
       symbols.py archive NM LIBRARY SOURCE...   these, and else names that begin with vmm__, or NVTX's own
       symbols.py hooks NM LIBRARY HOOKS         it exports dlsym and the functions that HOOKS lists, exactly
       symbols.py imports NM LIBRARY             it cannot end the process, print to standard output, run
                                                 another program, or call what cannot be called safely
"""
import os
import re
import subprocess
import sys

import sources

# glibc's checked forms (__printf_chk) count as the plain ones. What is left to end the process are those checks
# themselves and __stack_chk_fail: memory has been overwritten by then, and nothing can be promised any more. And, in
# what Clang makes of libvmmcache_torch, std::terminate: C++'s answer to a caller's destructor that throws.
ENDINGS = {"abort", "exit", "_exit", "_Exit", "quick_exit", "at_quick_exit", "__assert_fail", "__assert",
           "__assert_perror_fail", "raise", "gsignal", "kill", "tgkill", "pthread_kill", "pthread_exit", "alarm",
           "longjmp", "_longjmp", "siglongjmp", "err", "errx", "verr", "verrx", "error", "error_at_line",
           "_ZSt10unexpectedv"}
PRINTS = {"perror", "psignal", "printf", "vprintf", "puts", "putchar", "stdout"}
PROGRAMS = {"system", "popen", "fork", "vfork", "posix_spawn", "posix_spawnp", "execl", "execle", "execlp", "execv",
            "execve", "execvp", "execvpe", "fexecve", "wordexp"}
UNSAFE = {"gets", "strcpy", "strcat", "stpcpy", "sprintf", "vsprintf", "scanf", "sscanf", "fscanf", "alloca",
          "strtok", "tmpnam", "tempnam", "mktemp", "getenv", "setenv", "putenv", "rand", "srand", "signal", "umask",
          "chdir", "setuid", "socket", "connect"}
FORBIDDEN = ENDINGS | PRINTS | PROGRAMS | UNSAFE
# Processes of one user find each other's tensors through a Unix socket.
ALLOWED = {"libvmmcache_torch": {"socket", "connect"}}


# NVTX consists of headers. A library that includes them defines these symbols: weak, and hidden in a shared library.
NVTX = r"nvtx|InitializeInjectionNvtx"


def symbols(nm, library, *flags):
    lines = subprocess.run([nm, *flags, library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if len(line.split()) > 1}


def promises(paths):
    code = "".join(sources.without_comments(sources.text(".", path)) for path in paths)
    return set(re.findall(r"\bVMM_API\b[^;#]*?\b(vmm_\w+)\s*\(", code))


def exports(nm, library, *promising):
    promised = promises(promising)
    exported = symbols(nm, library, "-D", "--defined-only")
    faults = ["%s: promised, not exported" % name for name in promised - exported]
    faults += ["%s: exported, not promised" % name for name in exported - promised]
    sources.finish("exports", len(promised), sorted(faults))


def hooks(nm, library, listing):
    code = sources.text(".", listing)
    replaced = set()
    for part in re.findall(r"#define PRELOAD_(?:HOOK|CAPTURE)_MAP\(X\)(.*?[^\\])\n", code, re.DOTALL):
        replaced.update(re.findall(r"\bX\((cu\w+),", part))
        for name in re.findall(r"PRELOAD_TWICE\(X, (cu\w+),", part):
            replaced.update((name, name + "_ptsz"))
    for name in re.findall(r"#define PRELOAD_CAPTURE_TO_GRAPH\(X\) PRELOAD_TWICE\(X, (\w+),", code):
        replaced.update((name, name + "_ptsz"))
    exported = symbols(nm, library, "-D", "--defined-only")
    wanted = replaced | {"dlsym"}
    faults = ["%s: listed, not exported" % name for name in wanted - exported]
    faults += ["%s: exported, not listed" % name for name in exported - wanted]
    sources.finish("hooks", len(replaced), sorted(faults))


def archive(nm, library, *promising):
    promised = promises(promising)
    defined = symbols(nm, library, "--extern-only", "--defined-only")
    faults = ["%s: promised, not defined" % name for name in promised - defined]
    faults += ["%s: defined, neither promised nor internal by its name" % name
               for name in defined - promised if not name.startswith("vmm__") and not re.match(NVTX, name)]
    sources.finish("archive", len(defined), sorted(faults))


def imports(nm, library):
    taken = symbols(nm, library, "-D", "--undefined-only")
    forbidden = FORBIDDEN - ALLOWED.get(os.path.basename(library).split(".")[0], set())
    faults = [name for name in sorted(taken) if re.sub(r"^__(\w+)_chk$", r"\1", name) in forbidden]
    sources.finish("imports", len(taken), ["%s: used by the library" % name for name in faults])


{"exports": exports, "archive": archive, "hooks": hooks, "imports": imports}[sys.argv[1]](*sys.argv[2:])
