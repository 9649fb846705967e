"""A replacement for torchbench's worker: its behaviour depends on the workload's name.

test_jobs.py starts it.
"""
import json
import os
import signal
import sys
import time

import processes

kind, allocator, repeat, folder, *plan = sys.argv[1:]
names = processes.given()
if names[0] == "lame":
    sys.exit(1)
processes.wait_for_turn()
for name in names:
    processes.begin(name)
    if name == "silent":
        time.sleep(60)
    if name == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    record = {"kind": kind, "workload": name, "error": None}
    if name == "spoil":
        record["error"] = {"type": "RuntimeError", "message": "spoiled", "traceback": []}
    with open(os.path.join(folder, "%s.%s.%s.%s.json" % (kind, name, allocator, repeat)), "w",
              encoding="utf-8") as file:
        json.dump(record, file)
    processes.end(name, processes.PASS)
    if name == "spoil":
        sys.exit(processes.UNUSABLE)
    if name == "late":
        sys.exit(7)
