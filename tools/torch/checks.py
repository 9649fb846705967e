"""Runs checks that need a real PyTorch and a GPU, each in a process of its own.

A check is a function whose name begins with check_. Its first line of documentation says what it checks; what it
returns is printed behind that. It raises Skip for what this machine cannot do.
"""
import os
import subprocess
import sys

MIB = 1 << 20
CHECK_SECONDS = 600
SKIPPED = 77


class Skip(Exception):
    """What this machine cannot do."""


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


def unusable():
    """What is missing on this machine; empty: nothing. It asks a process of its own, for CUDA must not start here."""
    try:
        done = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], text=True,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        return "PyTorch does not start"
    lines = done.stdout.split()
    if done.returncode != 0:
        return "PyTorch cannot be imported"
    return "" if lines and lines[-1] not in ("0", "") else "there is no GPU"


def nccl_memory(backend):
    """(the allocator of ncclMemAlloc() or None, why there is none). Not every device has it."""
    try:
        return backend.mem_allocator, ""
    except RuntimeError as error:
        return None, str(error).splitlines()[0]


def find(scope):
    """{name: function} of the checks of a module."""
    return {name[len("check_"):]: function for name, function in scope.items() if name.startswith("check_")}


def _run_one(check):
    """In the process of one check. The last line of output is what the line of the check says."""
    try:
        print("\n" + (check() or ""))
    except Skip as reason:
        print("\n" + str(reason))
        sys.exit(SKIPPED)


def _run(program, checks, name, kind):
    """Prints the line of a check; whether it did not fail."""
    shown = "%-8s%-16s %s" % (kind, name, checks[name].__doc__)
    try:
        done = subprocess.run([sys.executable, os.path.abspath(program), "--one", kind, name], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CHECK_SECONDS, errors="replace")
    except subprocess.TimeoutExpired:
        print("FAIL  %s: it did not end within %d s" % (shown, CHECK_SECONDS))
        return False
    lines = done.stdout.splitlines() or [""]
    word = {0: "PASS", SKIPPED: "SKIP"}.get(done.returncode, "FAIL")
    detail = lines[-1].strip()
    if word == "FAIL":
        detail = "status %d: %s" % (done.returncode, next((line for line in reversed(lines) if line.strip()), ""))
    print("%-5s %s%s" % (word, shown, ": " + detail if detail else ""), flush=True)
    if word == "FAIL":
        print("".join("      | %s\n" % line for line in lines[-25:]), end="", flush=True)
    return word != "FAIL"


def main(program, checks, kinds, arguments):
    """kinds: every check runs once for each; a check reads its own with kind()."""
    if arguments[:1] == ["--one"]:
        return _run_one(checks[arguments[2]])
    chosen = [argument[2:] for argument in arguments if argument.startswith("--")] or kinds
    names = [argument for argument in arguments if not argument.startswith("--")] or list(checks)
    unknown = [name for name in names if name not in checks] + [kind for kind in chosen if kind not in kinds]
    if unknown:
        sys.exit("unknown: %s; there are --%s and %s" % (", ".join(unknown), ", --".join(kinds), ", ".join(checks)))
    missing = unusable()
    if missing:
        print("skipped:", missing)
        sys.exit(1 if os.environ.get("VMM_REQUIRE_GPU") == "1" else SKIPPED)
    results = [_run(program, checks, name, kind) for kind in chosen for name in names]
    print("%d checks, %d failed" % (len(results), results.count(False)))
    sys.exit(0 if all(results) else 1)


def kind():
    """In the process of a check: which kind it is run for."""
    return sys.argv[2]
