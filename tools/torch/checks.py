"""Runs checks that need a real PyTorch and a GPU, each in a process of its own.

A check is a function whose name begins with check_. Its first line of documentation says what it checks; what it
returns is printed behind that. It raises Skip for what this machine cannot do.
"""
import os
import sys
import threading

import processes

MIB = 1 << 20
CHECK_SECONDS = 600


class Skip(Exception):
    """What this machine cannot do."""


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


def holds(tensor, value):
    """Whether each element is that value."""
    return bool((tensor == value).all().item())


def need(scope, name):
    """A function of PyTorch that not every version has."""
    found = getattr(scope, name, None)
    if found is None:
        raise Skip("this PyTorch has no %s" % name)
    return found


def nccl_memory(backend):
    """(the allocator of ncclMemAlloc() or None, why there is none). Not every device has it."""
    try:
        return backend.mem_allocator, ""
    except RuntimeError as error:
        return None, str(error).splitlines()[0]


def find(scope):
    """{name: function} of the checks of a module."""
    return {name[len("check_"):]: function for name, function in scope.items() if name.startswith("check_")}


def kind():
    """In the process of a check: which kind it is run for."""
    return sys.argv[2]


def _run_here(checks):
    """In the process of a check."""
    for name in processes.given():
        processes.begin(name)
        try:
            word, detail = processes.PASS, checks[name]() or ""
        except Skip as reason:
            word, detail = processes.SKIP, str(reason)
        processes.end(name, word, detail.replace("\n", " "))


def _print_results(checks):
    """A function that prints each result, and what failed."""
    width, lock, failed = max(map(len, checks)), threading.Lock(), {}

    def tell(_, result):
        about = checks[result.name].__doc__.splitlines()[0]
        with lock:
            failed[result.kind, result.name] = result.word == processes.FAIL
            print(processes.line_of(result._replace(name=result.name.ljust(width)), about))
            print("".join("      | %s\n" % line for line in result.text.splitlines()), end="", flush=True)

    return tell, failed


def main(program, checks, kinds, arguments, alone, jobs=1):
    """kinds: every check runs once for each; a check reads its own with kind(). alone: the checks that need the GPU for
    themselves; of the others so many run at a time."""
    if arguments[:1] == ["--one"]:
        return _run_here(checks)
    if "--help" in arguments or "-h" in arguments:
        print(sys.modules["__main__"].__doc__.strip())
        sys.exit(0)
    chosen = [argument[2:] for argument in arguments if argument.startswith("--")] or kinds
    names = [argument for argument in arguments if not argument.startswith("--")] or list(checks)
    unknown = [name for name in names if name not in checks] + [kind for kind in chosen if kind not in kinds]
    if unknown:
        sys.exit("unknown: %s; there are --%s and %s" % (", ".join(unknown), ", --".join(kinds), ", ".join(checks)))
    processes.demand_gpu()
    tell, failed = _print_results(checks)
    command = [sys.executable, "-X", "faulthandler", os.path.abspath(program), "--one"]
    processes.Runner(jobs, tell).run([
        processes.Batch(kind, [name], command + [kind], CHECK_SECONDS, alone=name in alone)
        for kind in chosen for name in names])
    print("%d checks, %d failed" % (len(failed), sum(failed.values())))
    sys.exit(1 if any(failed.values()) else 0)
