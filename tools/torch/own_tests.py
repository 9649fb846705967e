#!/usr/bin/env python3
"""Runs the tests that PyTorch and CuPy have of themselves, with PyTorch's allocator and with vmmcache, and compares.

You need a checkout of PyTorch (https://github.com/pytorch/pytorch), of CuPy (https://github.com/cupy/cupy), or both, a
GPU, and the package expecttest; for CuPy's tests also pytest. The checkout may have another version than the PyTorch
that is installed: names that a test file imports and this PyTorch does not have are replaced, and listed. Set
VMMCACHE_LIBRARY and PYTHONPATH as docs/pytorch.md says.

Each file runs with both allocators at once, in several processes. A process that crashes, hangs, or has lost its CUDA
context is replaced, and the new one goes on with the next test. Tests that take much of the GPU follow, one process at
a time. Then each test with two outcomes runs once more with both allocators, in processes of its own.

OUT/torch_own.md is the page with the outcome, rewritten every 15 seconds; OUT/results.jsonl has each result with the
end of its output. The exit status is 1 if a test fails with vmmcache only, also if only the first time, if nothing ran,
and if it was interrupted; 77 without a GPU, which with VMM_REQUIRE_GPU=1 is a failure.
"""
import argparse
import importlib.util
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time

import own_page
import processes
from own_process import COLLECT
from processes import FAIL, Batch

HERE = os.path.dirname(os.path.abspath(__file__))
PYTORCH = ("test_cuda.py", "inductor/test_cudagraph_trees.py", "test_multiprocessing.py", "test_cuda_trace.py",
           "test_cuda_sanitizer.py", "test_cuda_multigpu.py", "dynamo/test_cudagraphs.py", "test_cuda_primary_ctx.py",
           "test_cuda_nvml_based_avail.py", "test_accelerator.py")
CUPY = tuple("cupy_tests/%s_tests" % name
             for name in ("cuda", "core", "creation", "manipulation", "indexing", "sorting", "linalg"))
# Tests that take much of the GPU, or read how much of it is free: not beside other processes.
ALONE = re.compile(r"out_of_memory|per_process_memory_fraction|large|overflow|mem_get_info|device_memory_used|"
                   r"utilization|cublas_workspace_memory|test_lazy_init|notifies_oom|raises_oom|graph_capture_oom|"
                   r"limited_memory")
# Many, and of optimizers and types more than of memory.
LAST = re.compile(r"TestCudaOptims|TestCudaAutocast")
LEFT_OUT = {"test_multiprocessing.py": re.compile(r"^(?!.*(cuda|event|rebuild))"),  # what needs no GPU
            "cupy_tests/cuda_tests": re.compile(r"test_compiler|test_nccl|test_cutensor")}
ALONE_TESTS = 3  # of one process, so that both allocators have run the same tests when the time is over
PART_TESTS = 60  # of a process, unless that makes more processes than run at a time
SHARES = (0.7, 0.85, 1.0)  # of the time: until the processes beside each other, those alone, and the repetitions end
PAGE_SECONDS = 15


class Source:
    """A file with tests of PyTorch, or a folder of CuPy's."""

    def __init__(self, tests, name, version):
        self.tests, self.name, self.version = tests, name, version
        self.path = os.path.join(tests, *name.split("/"))
        self.is_cupy = name.startswith("cupy_tests/")
        self.names, self.replaced, self.broken = [], [], []

    def collected(self, batch):
        """Takes over what the process that read it has logged."""
        for note in batch.notes:
            self.replaced += [note["replaced"]] if "replaced" in note else []
            self.broken += [note["broken"]] if "broken" in note else []
            self.names += [test for test in note.get("tests", ()) if not self.is_left_out(test)]

    def is_left_out(self, test):
        return self.name in LEFT_OUT and LEFT_OUT[self.name].search(test)


def version_of(folder, name):
    """What a checkout says of itself."""
    for path, pattern in (("version.txt", r"(\S+)"), ("cupy/_version.py", r"__version__ = '(.*)'")):
        try:
            with open(os.path.join(folder, path), encoding="utf-8") as file:
                return name + " " + re.search(pattern, file.read()).group(1)
        except (OSError, AttributeError):
            pass
    return name + " of unknown version"


def sources_of(folders, wanted):
    """Ends the program with one line if a folder or a file is wrong."""
    found, missing = [], []
    for folder in folders:
        kinds = [(name, tests, files) for name, tests, files in (
            ("PyTorch", os.path.join(folder, "test"), PYTORCH), ("CuPy", os.path.join(folder, "tests"), CUPY))
            if any(os.path.exists(os.path.join(tests, *file.split("/"))) for file in (*files, *wanted))]
        if not kinds:
            sys.exit("error: %s is no checkout of PyTorch (test/%s) or CuPy (tests/%s)" % (folder, PYTORCH[0], CUPY[0]))
        for name, tests, files in kinds:
            there = [Source(os.path.abspath(tests), file, version_of(folder, name)) for file in wanted or files]
            found += [each for each in there if os.path.exists(each.path)]
            missing += [each.name for each in there if not os.path.exists(each.path)]
    missing = [name for name in missing if name not in [each.name for each in found]]
    if wanted and missing:
        sys.exit("error: there is no %s in %s" % (", ".join(missing), ", ".join(folders)))
    return found, missing


def demand_packages(sources):
    for package, is_needed in (("expecttest", any(not each.is_cupy for each in sources)),
                               ("pytest", any(each.is_cupy for each in sources))):
        if is_needed and importlib.util.find_spec(package) is None:
            sys.exit("error: these tests need the package %s: pip install %s" % (package, package))


class Run:
    """One run of everything."""

    def __init__(self, options, sources, missing):
        self.options, self.sources, self.missing = options, sources, missing
        self.begun, self.lock = time.monotonic(), threading.Lock()
        self.first, self.again = {}, {}  # {(file, test): {allocator: Result}}
        self.planned, self.machine = 0, own_page.machine()
        self.runner = processes.Runner(options.jobs, self.tell)
        self.caches = tempfile.TemporaryDirectory(prefix="vmm_own_")
        self.results = open(os.path.join(options.out, "results.jsonl"), "w", encoding="utf-8")
        self.page_ended, self.was_interrupted = threading.Event(), False

    def deadline(self, share):
        return self.begun + share * (self.options.budget or math.inf)

    # ---- Processes

    def environment(self, kind, source):
        """Of a process of tests: as `python -m vmmcache run` sets it."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(
            ("VMMCACHE_AUTO", "VMMCACHE_NATIVE", "PYTORCH_ALLOC", "PYTORCH_CUDA_ALLOC", "PYTORCH_NO_CUDA_MEMORY"))}
        path = [HERE] + env.get("PYTHONPATH", "").split(os.pathsep)
        if kind != "native":
            spec = importlib.util.find_spec("vmmcache")
            package = os.path.dirname(spec.origin) if spec else os.path.join(HERE, "..", "python", "vmmcache")
            path += [os.path.dirname(package)]
            if not source.is_cupy:  # there PyTorch stays as it is
                path.insert(0, os.path.join(package, "startup"))
                env.update(VMMCACHE_AUTOINSTALL="strict", VMMCACHE_QUIET="1",
                           VMMCACHE_NATIVE="0" if self.options.plugin else "1")
        for name in ("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            env[name] = tempfile.mkdtemp(dir=self.caches.name)
        env.update(PYTHONPATH=os.pathsep.join(filter(None, path)), PYTHONFAULTHANDLER="1", OMP_NUM_THREADS="2",
                   MAX_JOBS="4", TORCHINDUCTOR_COMPILE_THREADS="1", CUPY_TEST_RANDOM_SUBSAMPLE="1",
                   _CUPY_TEST_SUBSAMPLE_SEED="7", CUPY_CACHE_DIR=os.path.join(self.caches.name, "cupy"))
        return env

    def batch(self, kind, source, names, alone=False, results=None):
        command = [sys.executable, "-B", os.path.join(HERE, "own_process.py"), kind, source.path]
        return Batch(kind, names, command, self.options.seconds, alone, (source, results),
                     env=self.environment(kind, source), cwd=source.tests)

    def pairs(self, source, names, results, alone=False):
        return [self.batch(kind, source, names, alone, results) for kind in own_page.KINDS] if names else []

    def batches(self):
        """In the order in which they begin."""
        beside, last, alone = [], [], []
        for source in self.sources:
            for names, is_last in (([name for name in source.names if not LAST.search(name)], False),
                                   ([name for name in source.names if LAST.search(name)], True)):
                apart = [name for name in names if not source.is_cupy and ALONE.search(name)]
                names = [name for name in names if name not in set(apart)]
                count = min(math.ceil(len(names) / PART_TESTS), max(1, self.options.jobs // 2))
                for part in range(count):
                    (last if is_last else beside).append(self.pairs(source, names[part::count], self.first))
                alone += [self.pairs(source, apart[at:at + ALONE_TESTS], self.first, alone=True)
                          for at in range(0, len(apart), ALONE_TESTS)]
        return [batch for pair in beside + last + alone for batch in pair]

    def repetitions(self):
        """A process for each test with two outcomes and each allocator."""
        by_name = {source.name: source for source in self.sources}
        pairs = [self.pairs(by_name[file], [test], self.again, alone=bool(ALONE.search(test)))
                 for file, test in own_page.differing(self.first)]
        return [batch for pair in pairs for batch in pair]

    # ---- Results

    def tell(self, batch, result):
        """In a thread of the runner."""
        source, results = batch.label
        with self.lock:
            if result.word == FAIL:
                print(processes.line_of(result._replace(name=source.name + " " + result.name)), flush=True)
            if results is None:  # of COLLECT
                source.broken += [result.reason] if result.word == FAIL else []
                return
            earlier = results.setdefault((source.name, result.name), {})
            earlier[result.kind] = result
            entry = {"file": source.name, "again": results is self.again, **result._asdict()}
            self.results.write(json.dumps(entry) + "\n")
            self.results.flush()

    def progress(self):
        with self.lock:
            ended = sum(len(each) for each in self.first.values())
            return "%4.0f s  %d of %d; %d tests have two outcomes; %d of their repetitions" % (
                time.monotonic() - self.begun, ended, self.planned, len(own_page.differing(self.first)),
                sum(len(each) for each in self.again.values()))

    def page_write(self):
        with self.lock:
            text = own_page.page(self)
        path = os.path.join(self.options.out, "torch_own.md")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def page_keep(self):
        """In a thread: shows how far it is."""
        while not self.page_ended.wait(PAGE_SECONDS):
            self.page_write()
            print(self.progress(), flush=True)

    # ---- The whole

    def collect(self):
        print("reading %d files" % len(self.sources), flush=True)
        batches = [self.batch("native", source, [COLLECT]) for source in self.sources]
        self.runner.run(batches, self.deadline(SHARES[0]))
        for batch in batches:
            batch.label[0].collected(batch)
        if self.options.only:
            for source in self.sources:
                source.names = [name for name in source.names if re.search(self.options.only, name)]
        self.planned = sum(len(source.names) for source in self.sources) * len(own_page.KINDS)
        print("%d tests" % (self.planned / len(own_page.KINDS)), flush=True)

    def run(self):
        """The exit status."""
        keeper = threading.Thread(target=self.page_keep, daemon=True)
        keeper.start()
        try:
            self.collect()
            batches = self.batches()
            for alone, share in ((False, SHARES[0]), (True, SHARES[1])):
                self.runner.run([batch for batch in batches if batch.alone == alone], self.deadline(share))
            self.runner.run(self.repetitions(), self.deadline(SHARES[2]))
        except KeyboardInterrupt:
            print("interrupted")
            self.was_interrupted = True
        finally:
            self.page_ended.set()
            keeper.join()
            self.page_write()
            self.results.close()
            self.caches.cleanup()
        print(self.progress())
        print(own_page.verdict(self))
        return 1 if own_page.only_ours(self) or self.was_interrupted or not self.first else 0


def options_read():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="append", required=True, metavar="FOLDER",
                        help="a checkout of PyTorch or CuPy; may be repeated. Of it, only test/ or tests/ is read")
    parser.add_argument("--out", default="own_tests", help="folder for the outcome (own_tests)")
    parser.add_argument("--budget", type=float, metavar="S",
                        help="seconds after which it ends; what did not run is counted")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) // 2), metavar="N",
                        help="processes at a time (half of the cores: %(default)s); each takes 1 GiB of the GPU")
    parser.add_argument("--seconds", type=float, default=120, metavar="S",
                        help="the longest that a test may take (%(default)s)")
    parser.add_argument("--only", metavar="RE", help="of all tests, those whose names match this regular expression")
    parser.add_argument("--plugin", action="store_true", help="PyTorch on the plug-in, not on the allocator class")
    parser.add_argument("files", nargs="*", metavar="FILE", help="files below test/ or folders below tests/; without: "
                        + ", ".join(PYTORCH + CUPY))
    return parser.parse_args()


def main():
    options = options_read()
    sources, missing = sources_of(options.tests, [name.rstrip("/") for name in options.files])
    demand_packages(sources)
    try:
        os.makedirs(options.out, exist_ok=True)
    except OSError as error:
        sys.exit("error: %s" % error)
    processes.demand_gpu()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(Run(options, sources, missing).run())


if __name__ == "__main__":
    main()
