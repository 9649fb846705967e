"""The trace that --trace makes of a snapshot: its requests are those of the snapshot, and fragtest replays them."""
import json
import os
import pickle
import subprocess
import unittest

import scenes
from support import MIB, FileTest
from vmmcache import report


def event(action, address, size, stream=0, time=0):
    return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time, "frames": []}


def snapshot_of(events, blocks=()):
    """A snapshot of one device, with one segment if it has blocks, given by their bytes."""
    tiles = [{"size": size, "requested_size": size, "state": "active_allocated", "frames": []} for size in blocks]
    segment = {"device": 0, "address": 2 * MIB, "total_size": sum(blocks), "stream": 0, "blocks": tiles}
    return {"segments": [segment] if blocks else [], "device_traces": [events]}


class RequestsTest(FileTest):
    def convert(self, snapshot, name="run.trace", *more):
        """The path of the trace of a snapshot."""
        source, target = self.write(pickle.dumps(snapshot, 4), "some.pickle"), self.path(name)
        self.assertEqual(report.main([source, "--trace", target, *more]), 0)
        return target

    def operations(self, path):
        with open(path, encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if not line.startswith("#")]

    def refused(self, data, *more, name="some.pickle"):
        """What the command says of a file from which it makes no trace."""
        status, said = self.run_report(self.write(data, name), "--trace", self.path("no.trace"), *more)
        self.assertEqual((status, said.count("\n")), (2, 1), said)
        self.assertEqual([name for name in ("no.trace", "page.html") if os.path.exists(self.path(name))], [])
        return said

    def test_a_trace_has_the_requests_of_the_snapshot(self):
        events = [event("alloc", 4096, 1000, 0x55D0), event("segment_map", 0, 2 * MIB),
                  event("alloc", 8192, 3000), event("free_requested", 4096, 1000, 0x55D0),
                  event("alloc", 16384, 5000, 0x77), event("free_completed", 4096, 1000, 0x55D0),
                  event("free_completed", 0, 700)]  # of a block from before
        path = self.convert(snapshot_of(events))
        self.assertEqual(self.operations(path),
                         ["+ 0 700 0", "+ 1 1000 1", "+ 2 3000 0", "+ 3 5000 2", "- 1", "- 0"])
        with open(path, encoding="utf-8") as file:
            self.assertIn("#@ stream 1 stream 0x55d0\n#@ stream 0 default stream\n#@ stream 2 stream 0x77\n",
                          file.read())

    def test_a_block_of_no_bytes_has_one(self):
        self.assertEqual(self.operations(self.convert(snapshot_of([event("alloc", 4096, 0)]))), ["+ 0 1 0"])

    def test_live_bytes_are_those_of_the_snapshot(self):
        snapshot = scenes.training()
        whole = report.read(self.write(pickle.dumps(snapshot, 4), "some.pickle"))
        found = report.read(self.convert(snapshot, "run.trace.gz"))
        self.assertEqual(sorted(found.bytes), sorted(whole.bytes))
        self.assertEqual(self.peak(found), self.peak(whole))
        live = sum(size for size, life in zip(found.bytes, found.life) if not life)
        self.assertEqual(live, snapshot["segments"][0]["active_size"])
        self.assertEqual(sorted(found.streams.texts), sorted(whole.streams.texts))

    @staticmethod
    def peak(found):
        change = [0] * (found.operations + 1)
        for size, start, life in zip(found.bytes, found.start, found.life):
            change[start] += size
            if life:
                change[start + life] -= size
        return max(sum(change[:state + 1]) for state in range(len(change)))

    def test_fragtest_replays_it(self):
        results = self.path("results.json")
        subprocess.run([os.environ["VMM_FRAGTEST"], "--trace", self.convert(scenes.training(), "run.trace.gz"),
                        "--driver", "sim", "--quiet", "--memory", "none", "--json", results],
                       stdout=subprocess.DEVNULL, check=True)
        with open(results, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        self.assertTrue(runs and all(run["ok"] for run in runs))

    def test_the_device_and_json_and_a_page_beside_it(self):
        snapshot = snapshot_of([event("alloc", 4096, 1000)])
        snapshot["device_traces"].append([event("alloc", 4096, 2000)])
        self.assertEqual(self.operations(self.convert(snapshot, "one.trace", "--device", "1")), ["+ 0 2000 0"])
        source = self.write(json.dumps(snapshot), "some.json")
        self.assertEqual(self.run_report(source, "--trace", self.path("both.trace"), "--device", "0"), (0, ""))
        self.assertEqual(self.operations(self.path("both.trace")), ["+ 0 1000 0"])
        self.assertTrue(os.path.exists(self.path("page.html")))

    def test_what_has_no_requests_is_refused(self):
        said = self.refused(pickle.dumps(snapshot_of([], [4096]), 4))
        self.assertRegex(said, r"some\.pickle: .*no history.*_record_memory_history\(\)")
        self.assertIn("some.trace: it is a trace already", self.refused("+ 1 100 0\n", name="some.trace"))
        self.assertIn("not a snapshot", self.refused(b"\x80\x04K\x01."))
        many = [event("alloc", 4096 * number, 512, number) for number in range(1, 1025)]
        self.assertRegex(self.refused(pickle.dumps(snapshot_of(many), 4)), "1024 streams.*1023")

    def test_a_file_that_cannot_be_written_is_named(self):
        source = self.write(pickle.dumps(scenes.training(), 4), "some.pickle")
        status, said = self.run_report(source, "--trace", "/nowhere/run.trace")
        self.assertEqual((status, said), (2, "vmmcache-report: /nowhere/run.trace: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
