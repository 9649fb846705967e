"""Processes of torchbench: all start ahead and run one after the other. If one dies, another one runs the workloads
that are left. A workload that killed its process gets a record that says so.

Imported by: run.py.
"""
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time

import allocators
from places import placeless

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
READY_SECONDS = 180  # many processes import at once
STILL_SECONDS = 200  # the longest time without output
END_SECONDS = 60     # from the last output to the exit
LAST_LINES = 12      # of a dead process's output
UNUSABLE = 3         # exit status of a worker that left the GPU unusable after it wrote its record


class Process:
    """One worker and its output."""

    def __init__(self, job, names):
        self.log = os.path.join(job.folder, "log", "%s.%s.%d.txt" % (job.kind, job.allocator, job.repeat))
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        self.lines = queue.Queue()
        self.was_silent = False
        plan = ["%s:%d" % (name, job.steps[name]) for name in names]
        cache = os.path.join(os.path.abspath(job.folder), "log", "inductor")
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, WORKER, job.kind, job.allocator, str(job.repeat), job.folder, *plan],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=allocators.environment(job.allocator, TORCHINDUCTOR_CACHE_DIR=cache))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with self.process.stdout as said:
            for line in said:
                if line.startswith("worker: "):
                    self.lines.put(line[len("worker: "):].strip())
        self.lines.put(None)

    def line(self, seconds):
        """The next line; None if the process ended, or was killed because it wrote nothing for too long."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            self.was_silent = True
            self.process.kill()
            return None

    def ready(self):
        return self.line(READY_SECONDS) == "ready"

    def go(self):
        """Lets the worker run to its end."""
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        except OSError:
            return
        line = self.line(STILL_SECONDS)
        while line is not None:
            if line.startswith("start "):
                print(line[len("start"):], end="", flush=True)
            line = self.line(STILL_SECONDS)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.was_silent = True

    def end(self):
        """Ends the process; returns None if it succeeded, else how it ended."""
        self.process.kill()
        status = self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.was_silent:
            return "the process was silent for too long and was killed"
        if status in (0, UNUSABLE):
            return None
        return "the process ended with %s" % ("signal %d" % -status if status < 0 else "status %d" % status)

    def last_lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return placeless(log.read().rstrip()).splitlines()[-LAST_LINES:]


class Job:
    """The workloads that one process of an allocator runs."""

    def __init__(self, kind, allocator, repeat, steps, folder):
        """steps: {workload: number of steps}"""
        self.kind, self.allocator, self.repeat = kind, allocator, repeat
        self.steps, self.folder = steps, folder
        for name in steps:
            if os.path.exists(self.path(kind, name)):  # from an earlier run
                os.remove(self.path(kind, name))
        self.first = Process(self, list(steps))

    def path(self, kind, name):
        return os.path.join(self.folder, "%s.%s.%s.%d.json" % (kind, name, self.allocator, self.repeat))

    def died(self, kind, name, process, ending):
        """Writes the record of a workload that killed its process, or of a process that failed at its end."""
        with open(self.path(kind, name), "w", encoding="utf-8") as file:
            json.dump({"workload": name, "allocator": self.allocator, "repeat": self.repeat, "kind": kind,
                       "times": [], "results": [], "warm": 0, "rows": [],
                       "error": {"type": "process died", "message": ending or "the process ended early",
                                 "traceback": process.last_lines()}}, file)

    def left(self, process, is_ready, names):
        """Ends a process; returns the workloads that it did not run. Writes records for the one in which it died, or
        for all of them if it was never ready."""
        ending = process.end()
        left = [name for name in names if not os.path.exists(self.path(self.kind, name))]
        if not left and ending:
            self.died("exit", self.kind, process, ending)
        went_on = process.process.returncode == UNUSABLE and left != names
        blamed = left if not is_ready else [] if went_on else left[:1]
        for name in blamed:
            self.died(self.kind, name, process, ending)
        return left[len(blamed):]

    def run(self):
        """Runs all workloads, even if some of them fail."""
        print("%s %s %d:" % (self.kind, self.allocator, self.repeat), end="", flush=True)
        start = time.perf_counter()
        process, names = self.first, list(self.steps)
        while names:
            is_ready = process.ready()
            if is_ready:
                process.go()
            names = self.left(process, is_ready, names)
            if names:
                process = Process(self, names)
        print("  (%.0f s)" % (time.perf_counter() - start), flush=True)
