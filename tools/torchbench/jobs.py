"""Jobs of torchbench: their processes all start ahead and run one after the other. If one dies, another one runs the
workloads that are left. A workload that killed its process gets a record that says so.

Imported by: run.py.
"""
import json
import os
import sys
import time

import allocators
import places
import processes

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
WORKLOAD_SECONDS = 200


class Job:
    """The workloads that one process of an allocator runs."""

    def __init__(self, kind, allocator, repeat, steps, folder):
        """steps: {workload: number of steps}"""
        self.kind, self.allocator, self.repeat, self.folder = kind, allocator, repeat, folder
        for name in steps:
            if os.path.exists(self.path(kind, name)):  # from an earlier run
                os.remove(self.path(kind, name))
        log = os.path.join(os.path.abspath(folder), "log")
        os.makedirs(log, exist_ok=True)
        plan = ["%s:%d" % each for each in steps.items()]
        self.batch = processes.Batch(
            allocator, steps, [sys.executable, WORKER, kind, allocator, str(repeat), folder, *plan], WORKLOAD_SECONDS,
            output=os.path.join(log, "%s.%s.%d.txt" % (kind, allocator, repeat)),
            env=allocators.environment(allocator, TORCHINDUCTOR_CACHE_DIR=os.path.join(log, "inductor")))
        self.batch.start()

    def path(self, kind, name):
        return os.path.join(self.folder, "%s.%s.%s.%d.json" % (kind, name, self.allocator, self.repeat))

    def died(self, kind, name, result):
        """Writes the record of a workload that killed its process, or of a process that failed at its end."""
        with open(self.path(kind, name), "w", encoding="utf-8") as file:
            json.dump({"workload": name, "allocator": self.allocator, "repeat": self.repeat, "kind": kind,
                       "times": [], "results": [], "warm": 0,
                       "error": {"type": "process died", "message": places.placeless(result.reason),
                                 "traceback": places.placeless(result.text).splitlines()}}, file)

    def tell(self, _, result):
        print(" " + result.name, end="", flush=True)
        if result.word == processes.FAIL:
            has_record = os.path.exists(self.path(self.kind, result.name))
            self.died(*("exit", self.kind) if has_record else (self.kind, result.name), result)

    def run(self):
        """Runs all workloads, even if some of them fail."""
        print("%s %s %d:" % (self.kind, self.allocator, self.repeat), end="", flush=True)
        start = time.perf_counter()
        processes.Runner(1, self.tell).run([self.batch])
        print("  (%.0f s)" % (time.perf_counter() - start), flush=True)
