"""Runs tests of one of PyTorch's or CuPy's own files in this process, for own_tests.py.

usage: own_process.py ALLOCATOR PATH        PATH: a file with unittest's tests, or a folder of CuPy's, which pytest runs

The names come from processes.given(). The name COLLECT stands for the work to log the names of all tests.
"""
import ast
import importlib
import os
import re
import sys
import traceback
import unittest

import processes

COLLECT = "(names of tests)"
MOST_TEXT = 5000
# The context is lost, and all tests after this one would fail too.
LOST = re.compile(r"illegal memory access|device-side assert|unspecified launch failure|misaligned address|"
                  r"previous error|ILLEGAL_ADDRESS|IllegalAddress|LAUNCH_FAILED|illegal instruction|uncorrectable ECC")
AT_END = re.compile(r"\n+To execute this test, run the following.*", re.DOTALL)


def error_line(error):
    """The first lines of an exception, without what PyTorch adds to them."""
    text = " ".join(AT_END.sub("", str(error)).split())
    return ("%s: %s" % (type(error).__name__, text) if text else type(error).__name__)[:250]


def tell_end(name, word, reason="", text=""):
    """Ends the process too, if nothing after this test can work."""
    processes.end(name, word, " ".join(reason.split())[:250], text[-MOST_TEXT:])
    if word == processes.FAIL and LOST.search(text):
        sys.stdout.flush()
        os._exit(processes.UNUSABLE)


# ---- Names that this PyTorch does not have


def stand_in(module, name):
    """What a test file gets for a name that a module of PyTorch does not define."""
    if name in ("HAS_CUDA", "HAS_GPU"):
        return getattr(module, "HAS_CUDA_AND_TRITON", True)
    if name == "NoTest":
        return object
    if name.isupper():
        return name in ("TEST_CUDA", "TEST_CUDA_GRAPH", "TEST_NUMPY")

    def decorator(*arguments, **_):  # or a function that makes one
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else lambda function: function
    return decorator


def make_importable(path):
    """Replaces names that a test file imports from PyTorch at its beginning, and logs which."""
    with open(path, encoding="utf-8") as file:
        nodes = ast.walk(ast.parse(file.read()))
    for node in nodes:
        name = getattr(node, "module", None) or ""
        if not isinstance(node, ast.ImportFrom) or node.level or name.split(".")[0] != "torch" or \
                (node.col_offset and not name.startswith("torch.testing")):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # the test file fails in the same way
        for alias in node.names:
            if alias.name == "*" or hasattr(module, alias.name):
                continue
            try:
                importlib.import_module(name + "." + alias.name)
            except ImportError:
                setattr(module, alias.name, stand_in(module, alias.name))
                processes.log(replaced=name + "." + alias.name)


# ---- unittest


class Told(unittest.TestResult):
    """Logs each test."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome = (processes.PASS,)
        processes.begin(test.id())

    def _failed(self, test, error):
        text = "".join(traceback.format_exception(*error))
        self.outcome = (processes.FAIL, error_line(error[1]), text)
        if not isinstance(test, unittest.TestCase):  # setUpClass() and the like
            processes.log(broken="%s: %s" % (test, self.outcome[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = (processes.SKIP, reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = (processes.FAIL, "it succeeds, and PyTorch expects a failure")

    def stopTest(self, test):
        super().stopTest(test)
        tell_end(test.id(), *self.outcome)


def flat(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        else:
            yield each


def run_unittest(path, names):
    sys.path.insert(0, os.path.dirname(path))
    sys.argv[:] = [path]
    make_importable(path)
    module = importlib.import_module(os.path.splitext(os.path.basename(path))[0])
    tests = {test.id(): test for test in flat(unittest.defaultTestLoader.loadTestsFromModule(module))}
    if names == [COLLECT]:
        processes.log(tests=[name for name in tests if not name.split(".")[1].endswith("CPU")])
        return
    for name in names:
        if name not in tests:
            processes.end(name, processes.FAIL, "there is no such test in this process")
    unittest.TestSuite(tests[name] for name in names if name in tests).run(Told())


# ---- pytest


class Plugin:
    """Logs each test that pytest runs."""

    def __init__(self, names, allocator):
        self.names, self.allocator, self.parts = set(names), allocator, []

    def pytest_collectreport(self, report):
        if report.failed:
            processes.log(broken="%s: %s" % (report.nodeid, str(report.longrepr).strip().splitlines()[-1]))

    def pytest_collection_modifyitems(self, items):
        if COLLECT in self.names:
            processes.log(tests=[item.nodeid for item in items])
        items[:] = [item for item in items if item.nodeid in self.names]

    def pytest_runtest_logstart(self, nodeid):
        processes.begin(nodeid)
        if self.allocator:
            sys.modules["cupy"].cuda.set_allocator(self.allocator)  # some tests set back what CuPy has by default

    def pytest_runtest_logreport(self, report):
        word = {"passed": processes.PASS, "skipped": processes.SKIP}.get(report.outcome, processes.FAIL)
        reason = text = ""
        if hasattr(report, "wasxfail"):
            word = processes.FAIL if report.outcome == "passed" and report.when == "call" else processes.PASS
        elif word != processes.PASS:
            text = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else text.strip().splitlines()[-1]
        self.parts.append((word, reason, text))
        if report.when == "teardown":
            rank = (processes.PASS, processes.SKIP, processes.FAIL)
            worst = max(self.parts, key=lambda part: rank.index(part[0]))
            self.parts = []
            tell_end(report.nodeid, *worst)


def run_pytest(path, names, allocator):
    import pytest
    settings = os.path.join(os.environ[processes.FOLDER], "pytest.ini")
    with open(settings, "w", encoding="ascii") as file:
        file.write("[pytest]\nmarkers =\n    slow\n    multi_gpu\n    thread_unsafe\n")
    ours = None
    if allocator != "native":
        import cupy
        import vmmcache
        vmmcache.install_cupy()
        ours = cupy.cuda.get_allocator()
    tests = path[:path.rindex("cupy_tests")]
    options = ["-q", "--tb=short", "-W", "ignore", "--capture=sys", "--continue-on-collection-errors",
               "-p", "no:cacheprovider", "-c", settings, "--rootdir", tests, "--confcutdir", tests]
    status = pytest.main([*options, path], plugins=[Plugin(names, ours)])
    if status not in (0, 1, 5):  # tests that failed and none that ran are no error
        sys.exit(int(status))


def main(allocator, path):
    names = processes.given()
    if names == [COLLECT]:
        processes.begin(COLLECT)
    if os.path.isdir(path):
        run_pytest(path, names, allocator)
    else:
        import torch
        backend = torch.cuda.get_allocator_backend()
        if (backend == "vmmcache") != (allocator == "vmmcache"):
            sys.exit("the allocator of this process is %s" % backend)
        run_unittest(path, names)
    if names == [COLLECT]:
        processes.end(COLLECT, processes.PASS)


if __name__ == "__main__":
    main(*sys.argv[1:])
