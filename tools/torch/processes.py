"""Runs named checks in processes, several at a time, and says how each one ended, also if its process dies or hangs.

A batch is a list of names for one process at a time. The process asks given() for them, and calls begin() and end() for
each. If it dies or hangs in one, that one failed; if it dies between two, the one before failed; if it begins none, all
of them failed, and log(broken=...) may say why. A new process takes those that are left. A process that ends itself
with status UNUSABLE asks for this.

Imported by: checks.py, own_process.py, own_tests.py, and jobs.py and worker.py of torchbench.
"""
import collections
import concurrent.futures
import contextlib
import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"
SKIPPED = 77  # the exit status of a program that cannot run here
UNUSABLE = 78
START_SECONDS = 300  # imports, compiling and what a process does between two names
TAIL_LINES = 25
ERROR = re.compile(r"[Ee]rror|Fatal|abort|terminate|vmmcache:")  # in what a process says last
NO_END = "it did not end within"
FOLDER = "VMM_BATCH_FOLDER"  # names.json and log of the batch
Result = collections.namedtuple("Result", "kind name word reason text")


def unusable():
    """What is missing on this machine; empty: nothing. It asks a process of its own, for CUDA must not start here."""
    code = "import torch; print(torch.cuda.device_count())"
    try:
        done = subprocess.run([sys.executable, "-c", code], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=START_SECONDS)
    except subprocess.TimeoutExpired:
        return "PyTorch does not start"
    if done.returncode != 0:
        return "PyTorch cannot be imported"
    return "" if done.stdout.split()[-1:] not in ([], ["0"]) else "there is no GPU"


def demand_gpu():
    """Ends the program where it cannot run."""
    missing = unusable()
    if missing:
        print("skipped:", missing)
        sys.exit(1 if os.environ.get("VMM_REQUIRE_GPU") == "1" else SKIPPED)


def line_of(result, about=""):
    return "%-5s %-9s %s%s%s" % (result.word, result.kind, result.name, " " + about if about else "",
                                 ": " + result.reason if result.reason else "")


# ---- In the process of a batch


def log(**entry):
    if FOLDER not in os.environ:
        return
    with open(os.path.join(os.environ[FOLDER], "log"), "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def _logged(folder, offset=0):
    """The entries from there on, and where the next one begins."""
    try:
        with open(os.path.join(folder, "log"), "rb") as file:
            file.seek(offset)
            whole, newline, _ = file.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], offset
    entries = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError):  # of a process that was killed in the middle of it
            entries.append(json.loads(line))
    return entries, offset + len(whole + newline)


def given(names=()):
    """The names that are left; for a program without a batch, names. This process ends with its parent."""
    if FOLDER not in os.environ:
        return list(names)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    folder = os.environ[FOLDER]
    with open(os.path.join(folder, "names.json"), encoding="utf-8") as file:
        names = json.load(file)
    done = {entry["name"] for entry in _logged(folder)[0] if "word" in entry}
    return [name for name in names if name not in done]


def wait_for_turn():
    if FOLDER in os.environ and not sys.stdin.readline():
        sys.exit("there is no turn for this process")


def begin(name):
    sys.stdout.flush()
    log(begin=name, output=os.fstat(1).st_size)


def end(name, word, reason="", text=""):
    log(name=name, word=word, reason=reason, text=text)


# ---- In the parent


class Batch:
    """The names that one process at a time runs. command does not name them. label is for the caller. output: a file
    to which the processes append what they say."""

    def __init__(self, kind, names, command, seconds, alone=False, label=None, output=None, **popen):
        self.kind, self.left, self.command, self.seconds = kind, list(names), command, seconds
        self.alone, self.label, self.popen = alone, label, popen
        self.notes = []  # other entries of the log
        self.folder, self.said, self.process, self.offset = None, output, None, 0

    def start(self):
        """Starts a process, which waits for its turn if it calls wait_for_turn()."""
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="vmm_batch_")
            self.said = self.said or os.path.join(self.folder, "output")
            with open(os.path.join(self.folder, "names.json"), "w", encoding="utf-8") as file:
                json.dump(self.left, file)
        env = {**self.popen.get("env", os.environ), FOLDER: self.folder}
        for name in {"PYTHONPATH", "VMMCACHE_LIBRARY"} & set(env):  # a process may work in another folder
            env[name] = os.pathsep.join(os.path.abspath(each) for each in env[name].split(os.pathsep) if each)
        with open(self.said, "ab") as output:
            self.running, self.output, self.last = None, output.tell(), None
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                **{**self.popen, "env": env})

    def run(self, runner):
        """In a thread: until no name is left or time is up."""
        try:
            while self.left and time.monotonic() < runner.deadline:
                if self.process is None:
                    self.start()
                with contextlib.suppress(BrokenPipeError):
                    self.process.stdin.write(b"go\n")
                    self.process.stdin.close()
                why = self._follow(runner)
                if why and (self.running or self.process.returncode not in (0, UNUSABLE) or not self.last):
                    self._blame(why, runner)
                self.process = None
        finally:
            self.end()

    def end(self):
        if self.process is not None:
            self._kill(signal.SIGKILL)
            self.process.stdin.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _follow(self, runner):
        """Until the process has ended: why it did; None: time was up."""
        self.since = time.monotonic()
        while True:
            has_ended = self.process.poll() is not None
            entries, self.offset = _logged(self.folder, self.offset)
            for entry in entries:
                self._take(entry, runner)
            if has_ended:
                self._kill(signal.SIGKILL)  # what it has left behind
                code = self.process.returncode
                return "signal %d" % -code if code < 0 else "status %d" % code
            now, most = time.monotonic(), self.seconds if self.running else START_SECONDS
            if now > runner.deadline or now > self.since + most:
                self._kill(signal.SIGABRT, signal.SIGKILL)  # the first one lets faulthandler say where it was
                return None if now > runner.deadline else "%s %d s" % (NO_END, most)
            time.sleep(0.1)

    def _kill(self, *signals):
        for number in signals:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, number)
                self.process.wait(3)
        self.process.wait()

    def _take(self, entry, runner):
        if "begin" in entry:
            self.running, self.output = entry["begin"], entry["output"]
        elif "word" in entry:
            self.running, self.last = None, entry["name"]
            self._tell(runner, entry["name"], entry["word"], entry["reason"], entry["text"])
        else:
            self.notes.append(entry)
        self.since = time.monotonic()

    def _tell(self, runner, name, word, reason, text):
        if name in self.left:
            self.left.remove(name)
        runner.tell(self, Result(self.kind, name, word, reason, text))

    def _blame(self, why, runner):
        """Ends those that the end of the process is the fault of."""
        with open(self.said, "rb") as file:
            file.seek(self.output)
            said = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        broken = [note["broken"] for note in self.notes if "broken" in note]
        if broken and not self.last:
            why = broken[-1]
        elif said and not why.startswith(NO_END):
            why += ": " + ([line for line in said if ERROR.search(line)] or said)[-1].strip()
        for name in [self.running or self.last] if self.running or self.last else list(self.left):
            log_path = os.path.join(self.folder, "log")
            with open(log_path, "a", encoding="utf-8") as file:  # for the next process
                file.write("\n%s\n" % json.dumps({"name": name, "word": FAIL}))
            self.offset = os.path.getsize(log_path)
            self._tell(runner, name, FAIL, why, "\n".join(said[-TAIL_LINES:]))


class Runner:
    """Runs batches, and calls tell(batch, result) in their threads. A name may have a second, worse result."""

    def __init__(self, jobs, tell):
        self.jobs, self.tell, self.deadline = jobs, tell, math.inf

    def run(self, batches, deadline=math.inf):
        """Those that need the GPU alone come last."""
        self.deadline = deadline
        for alone in (False, True):
            with concurrent.futures.ThreadPoolExecutor(1 if alone else self.jobs) as pool:
                try:
                    runs = [pool.submit(batch.run, self) for batch in batches if batch.alone == alone]
                    for each in runs:
                        each.result()
                except BaseException:
                    self.deadline = -math.inf  # the threads end their processes
                    raise
