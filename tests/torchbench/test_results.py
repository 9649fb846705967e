"""results.py: comparisons, and the words for them."""
import json
import math
import os
import tempfile
import unittest

import results


def record(allocator, repeat, values, **more):
    found = {"kind": "steps", "workload": "llm", "allocator": allocator, "repeat": repeat, "warm": 1,
             "times": [5.0, 1.0, 3.0, 2.0], "results": [[value] for value in values],
             "error": None, "peaks": {"allocated": 200, "active": 200, "reserved": 210}, "graph_bytes": 0,
             "later_peaks": {"allocated": 150, "active": 150, "reserved": 210}, "device_used_before": 1,
             "device_used": 301}
    found.update(more)
    return found


class Results(unittest.TestCase):
    def data(self, *records):
        with tempfile.TemporaryDirectory() as folder:
            for each in records:
                name = "%(kind)s.%(workload)s.%(allocator)s.%(repeat)d.json" % each
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    json.dump(each, file)
            return results.Data([folder])

    def test_difference(self):
        self.assertEqual(results.difference([[1.0], [2.0]], [[1.0], [2.0]]), 0.0)
        self.assertAlmostEqual(results.difference([[1.0, 4.0]], [[1.0, 5.0]]), 0.2)
        self.assertEqual(results.difference([[math.nan]], [[math.nan]]), 0.0)
        self.assertEqual(results.difference([[math.nan]], [[1.0]]), math.inf)
        self.assertEqual(results.difference([[1.0]], [[1.0], [1.0]]), math.inf)

    def test_verdicts(self):
        native = record("native", 0, [1.0, 2.0]), record("native", 1, [1.0, 2.1])
        ours = record("vmmcache", 0, [1.0, 2.0])
        self.assertIn("within noise", self.data(*native, ours).verdict("llm", "vmmcache"))
        far = record("vmmcache", 0, [1.0, 3.0])
        self.assertIn("DIFFERS", self.data(*native, far).verdict("llm", "vmmcache"))
        apart = record("vmmcache", 0, [1.0, 2.0]), record("vmmcache", 1, [1.0, 3.0])
        self.assertIn("within noise", self.data(*native, *apart).verdict("llm", "vmmcache"))
        self.assertIn("its own 3.3e-01", self.data(*native, *apart).verdict("llm", "vmmcache"))
        self.assertEqual(self.data(native[0], ours).verdict("llm", "vmmcache"), "bit-equal")
        self.assertIn("noise unknown", self.data(native[0], far).verdict("llm", "vmmcache"))
        self.assertEqual(self.data(*native).verdict("llm", "vmmcache"), "-")

    def test_figures_exclude_warm_up_steps(self):
        data = self.data(record("native", 0, [1.0]), record("vmmcache", 0, [1.0], times=[9.0, 1.0, 4.0, 4.0]))
        self.assertEqual(data.median("llm", "native", results.step_median), 2.0)
        self.assertEqual(data.median("llm", "native", results.total), 6.0)
        self.assertEqual(data.times_native("llm", "vmmcache", results.step_median), 2.0)
        self.assertAlmostEqual(data.median("llm", "native", results.footprint), 1.05)
        self.assertEqual(data.median("llm", "native", results.used), 300)

    def test_time_inside_the_allocator_is_compared_with_whole_steps_of_native(self):
        steps = [1.0] * 12
        data = self.data(record("native", 0, [1.0], times=steps, inside=[0.1] * 12),
                         record("native", 1, [1.0], times=steps, inside=[0.3] * 12),
                         record("vmmcache", 0, [1.0], times=steps, inside=[0.2] * 10 + [0.05] * 2))
        first, later = data.inside_above("llm", "vmmcache")
        self.assertAlmostEqual(first, 0.1)
        self.assertAlmostEqual(later, -0.05)
        self.assertEqual(data.inside("llm", "native"), [0.1] * 12)
        without = self.data(record("native", 0, [1.0], inside=[0.0] * 4), record("vmmcache", 0, [1.0]))
        self.assertEqual(without.inside_above("llm", "vmmcache"), (None, None))

    def test_spread_is_of_whole_steps(self):
        data = self.data(record("native", 0, [1.0]), record("vmmcache", 0, [1.0], times=[9.0, 1.0, 1.0, 1.0]),
                         record("vmmcache", 1, [1.0], times=[9.0, 4.0, 4.0, 4.0]))
        self.assertEqual(data.spread("llm", "vmmcache"), (0.5, 2.0))

    def test_quiet_steps_take_the_fastest_repetition_of_each(self):
        data = self.data(record("native", 0, [1.0], times=[9.0, 1.0, 8.0, 2.0]),
                         record("native", 1, [1.0], times=[9.0, 7.0, 3.0, 9.0]),
                         record("vmmcache", 0, [1.0], times=[9.0, 5.0, 4.0, 9.0]))
        self.assertEqual(data.quiet_times("llm", "native"), [1.0, 3.0, 2.0])
        self.assertEqual(data.quiet_ratio("llm", "vmmcache"), 2.5)
        self.assertIsNone(data.quiet_ratio("gnn", "vmmcache"))

    def test_what_graphs_keep_is_needed_only_once_they_exist(self):
        data = self.data(record("native", 0, [1.0], graph_bytes=40), record("vmmcache", 0, [1.0], graph_bytes=60))
        self.assertAlmostEqual(data.median("llm", "native", results.footprint_needed), 210 / 200)
        self.assertAlmostEqual(data.median("llm", "vmmcache", results.footprint_needed), 210 / 210)

    def test_noise_includes_all_runs_of_pytorchs_allocators(self):
        data = self.data(record("native", 0, [1.0]), record("expandable", 0, [1.2]),
                         record("vmmcache", 0, [1.1]))
        self.assertIn("within noise", data.verdict("llm", "vmmcache"))

    def test_failures_are_reported_without_figures(self):
        error = {"type": "RuntimeError", "message": "no", "traceback": []}
        data = self.data(record("native", 0, [1.0]), record("vmmcache", 0, [], error=error, times=[]),
                         record("vmmcache", 1, [], error=error, times=[]))
        self.assertIsNone(data.median("llm", "vmmcache", results.step_median))
        self.assertTrue(data.failed("llm", "vmmcache"))
        self.assertEqual([count for _, count in data.failures()], [2])
        self.assertTrue(any("2 times: RuntimeError: no" in line for line in results.summary(data)))

    def test_percentile(self):
        self.assertEqual(results.percentile(list(range(100)), 0.95), 95)
        self.assertEqual(results.percentile([3], 0.95), 3)


if __name__ == "__main__":
    unittest.main()
