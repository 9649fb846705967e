"""The trace for Perfetto: each event is of the Chrome format, and says what the recording does."""
import gzip
import io
import json
import os
import pickle
import random
import subprocess
import unittest
from contextlib import redirect_stderr

import scenes
from support import MIB, NOTES, FileTest
from vmmcache import report, report_perfetto

# What each kind of event must have besides "ph", and the types.
COMMON = {"pid": int, "name": str, "args": dict}
FIELDS = {
    "M": {"tid": int},
    "C": {"ts": int},
    "i": {"tid": int, "ts": int, "s": str, "cat": str},
    "b": {"tid": int, "ts": int, "cat": str, "id": int},
    "e": {"tid": int, "ts": int, "cat": str, "id": int},
}


def check(trace):
    """Fails unless the trace has the format; returns its events."""
    assert set(trace) == {"displayTimeUnit", "traceEvents"} and trace["displayTimeUnit"] in ("ms", "ns")
    last, begun = 0, {}
    for event in trace["traceEvents"]:
        fields = {"ph": str, **COMMON, **FIELDS[event["ph"]]}
        assert set(event) == set(fields), event
        assert all(type(event[name]) is kind for name, kind in fields.items()), event
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and set(event["args"]) == {"name"}, event
            continue
        assert event["ts"] >= last, event
        last = event["ts"]
        if event["ph"] == "C":
            assert event["args"] and all(type(value) is int and value >= 0 for value in event["args"].values()), event
        elif event["ph"] in "be":
            key = event["cat"], event["id"]
            assert (key in begun) == (event["ph"] == "e") and begun.get(key, event["name"]) == event["name"], event
            begun[key] = event["name"]
            if event["ph"] == "e":
                del begun[key]
    assert not begun, begun
    return trace["traceEvents"]


class PerfettoTest(FileTest):
    def export(self, data, name="run.json"):
        """The events of a recording."""
        path = self.write(data)
        self.assertEqual(report.main([path, "--perfetto", self.path(name)]), 0)
        with (gzip.open if name.endswith(".gz") else open)(self.path(name), "rb") as file:
            return check(json.loads(file.read()))

    def counters(self, events, name="memory"):
        return [(event["ts"], event["args"]) for event in events if event["ph"] == "C" and event["name"] == name]

    def test_counters_follow_memory(self):
        events = self.export(NOTES)
        self.assertEqual(self.counters(events), [
            (1000, {"live": 0, "busy": 0, "reserved": 2 * MIB}),
            (1500, {"live": 4096, "busy": 4096, "reserved": 2 * MIB}),
            (1700, {"live": 0, "busy": 4096, "reserved": 2 * MIB}),
            (1701, {"live": 0, "busy": 0, "reserved": 0})])

    def test_blocks_are_slices_with_their_owners(self):
        begin, end = (event for event in self.export(NOTES) if event.get("cat") == "block")
        self.assertEqual((begin["ph"], begin["ts"], begin["name"]), ("b", 1500, "a batch"))
        self.assertEqual((end["ph"], end["ts"]), ("e", 1700))
        self.assertEqual(begin["args"], {"bytes": 4096, "address": "0x400000", "stream": "copies", "pool": "graphs",
                                         "stack": ["step (a.py:9)", "main (a.py:1)"]})

    def test_notes_are_instants(self):
        event, = (event for event in self.export(NOTES) if event["ph"] == "i")
        self.assertEqual((event["name"], event["cat"], event["args"]["text"]),
                         ("step 2 begins", "note", "step 2 begins"))

    def test_sleeps_are_slices_and_failures_are_marked(self):
        lines = ["#@ pool 1 weights", "#@ next time=10 pool=1", "+ 1 100 0"]
        for time, text in ((20, "vmm_pool_sleep: weights"), (30, "alloc: pool weights sleeps: wake it first"),
                           (40, "vmm_pool_wake: weights: VMM_ERR_DEVICE_OOM"), (50, "vmm_pool_wake: weights"),
                           (60, "vmm_pool_wake: weights"), (70, "vmm_pool_sleep: a: b"),
                           (80, "vmm_trim: released 7 bytes"),
                           (90, "out of memory: 1.00 GiB requested, 0 B free on the device")):
            lines += [f"#@ next time={time}", f"+ {time} 1 0", "#@ note " + text]
        events = self.export("\n".join(lines))
        sleeps = [(event["ph"], event["ts"], event["name"]) for event in events if event.get("cat") == "sleep"]
        self.assertEqual(sleeps, [("b", 20, "weights asleep"), ("e", 50, "weights asleep"),
                                  ("b", 70, "a: b asleep"), ("e", 91, "a: b asleep")])
        instants = [(event["ts"], event["cat"], event["name"]) for event in events if event["ph"] == "i"]
        self.assertEqual(instants, [(30, "failure", "alloc"), (40, "failure", "vmm_pool_wake"),
                                    (80, "note", "vmm_trim"), (90, "failure", "out of memory")])

    def test_pools_have_counters(self):
        events = self.export("\n".join((
            "#@ pool 1 weights", "#@ next time=5 pool=1", "+ 1 100 0", "#@ next time=6", "+ 2 30 0",
            "#@ next time=7", "- 1")))
        self.assertEqual(self.counters(events, "pool 1: weights"), [(5, {"live": 100}), (7, {"live": 0})])
        self.assertEqual(self.counters(events, "pool 0: default pool"), [(6, {"live": 30})])

    def test_long_recordings_keep_their_peak(self):
        draw, lines, live, peak = random.Random(1), [], {}, 0
        for number in range(2 * report_perfetto.SAMPLES_MOST):
            if live and draw.random() < 0.5:
                block = draw.choice(list(live)) if len(live) < 50 else next(iter(live))
                del live[block]
                lines.append(f"- {block}")
            else:
                live[number] = draw.randrange(1, 100)
                lines.append(f"+ {number} {live[number]} 0")
            peak = max(peak, sum(live.values()))
        events = self.export("\n".join(lines))
        samples = self.counters(events)
        self.assertLessEqual(len(samples), report_perfetto.SAMPLES_MOST + 2)
        self.assertEqual(max(values["live"] for _, values in samples), peak)
        self.assertEqual(samples[-1][1]["live"], sum(live.values()))
        blocks = [event for event in events if event.get("cat") == "block"]
        self.assertEqual(len(blocks), 2 * report_perfetto.BLOCKS_MOST)

    def test_snapshots_are_exported_too(self):
        snapshot = scenes.training()
        events = self.export(pickle.dumps(snapshot))
        self.assertGreater(max(values["live"] for _, values in self.counters(events)), MIB)
        self.assertTrue(any(event.get("cat") == "block" and event["args"].get("stack") for event in events))

    def test_compressed_and_beside_the_page(self):
        self.assertEqual(self.export(NOTES, "run.json.gz"), self.export(NOTES))
        path = self.write(NOTES)
        self.assertEqual(self.run_report(path, "--perfetto", self.path("both.json"))[0], 0)
        self.assertTrue(os.path.getsize(self.path("both.json")) and os.path.getsize(self.path("page.html")))

    def test_no_output_is_wrong_usage(self):
        with self.assertRaises(SystemExit) as ended, redirect_stderr(io.StringIO()):
            report.main([self.write(NOTES)])
        self.assertEqual(ended.exception.code, 2)

    def test_what_the_library_records(self):
        worker = os.environ.get("VMM_TEST_WORKER")
        self.assertTrue(worker)
        trace = self.path("own.trace")
        script = "pool weights\nalloc 1 5242880 2\nsleep 1\nwake 1\nfree\nsleep 1\nend\n"
        subprocess.run([worker], input=script, text=True, check=True, stdout=subprocess.DEVNULL, timeout=60,
                       env=dict(os.environ, VMM_TRACE=trace, VMM_DRIVER="host"))
        with open(trace, encoding="utf-8") as file:
            events = self.export(file.read())
        self.assertEqual(max(values["live"] for _, values in self.counters(events)), 5 * MIB)
        self.assertGreaterEqual(max(values["reserved"] for _, values in self.counters(events)), 5 * MIB)
        sleeps = [(event["ph"], event["name"]) for event in events if event.get("cat") == "sleep"]
        self.assertEqual(sleeps, [("b", "weights asleep"), ("e", "weights asleep")] * 2)
        self.assertTrue(self.counters(events, "pool 1: weights"))


del FileTest
if __name__ == "__main__":
    unittest.main()
