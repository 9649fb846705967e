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
    record = {"kind": kind, "workload": name, "allocator": allocator, "repeat": int(repeat), "warm": 1,
              "times": [9.0, 0.25, 0.5], "results": [[1.0], [2.0]], "rows": [], "error": None,
              "peaks": {"allocated": 100, "active": 100, "reserved": 102}, "graph_bytes": 0,
              "later_peaks": {"allocated": 100, "active": 100, "reserved": 102}, "device_used_before": 5,
              "device_used": 107}
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
