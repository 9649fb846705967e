"""What tools/preload/check.py says of time and memory, without a GPU.

usage: test_measure.py TOOLS
"""
import ctypes
import os
import sys
import tempfile
import time
import unittest

TOOLS = sys.argv[1]
sys.path.insert(0, TOOLS)
import check  # noqa: E402
import measure  # noqa: E402

MIB = 1 << 20


class Meter:
    """Says one number after the other, and the last one from then on."""

    seconds = 0.0005

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def read(self):
        number = self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]
        if number is None:
            raise OSError("not now")
        return number


class FakeNvml:
    """As libnvidia-ml, with GPUs that use so many bytes."""

    def __init__(self, *used, status=0):
        self.used, self.status = used, status

    def nvmlInit_v2(self):
        return self.status

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.used)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number, device):
        device._obj.value = number.value + 1
        return 0

    def nvmlDeviceGetMemoryInfo(self, device, memory):
        memory._obj.used = self.used[device.value - 1]
        return 0


class Meters(unittest.TestCase):
    def test_nvml_adds_up_all_gpus(self):
        self.assertEqual(measure.Nvml(FakeNvml(3 * MIB, 5 * MIB)).read(), 8 * MIB)
        self.assertEqual(ctypes.sizeof(measure._Memory), 24)

    def test_nvml_that_does_not_work_is_left_out(self):
        for library in (FakeNvml(1, status=9), FakeNvml(), object()):
            with self.assertRaises(OSError):
                measure.Nvml(library)
            self.assertIsNone(measure.open_meter(library))
        self.assertEqual(measure.open_meter(FakeNvml(7 * MIB)).read(), 7 * MIB)


class Measurements(unittest.TestCase):
    def measured(self, meter, seconds=0.02):
        with measure.Measured(meter) as measured:
            time.sleep(seconds)
        return measured

    def test_the_peak_is_what_was_added(self):
        self.assertEqual(self.measured(Meter(100 * MIB, 100 * MIB, 700 * MIB, 300 * MIB)).peak, 600 * MIB)

    def test_memory_of_the_process_before_does_not_count(self):
        self.assertEqual(self.measured(Meter(900 * MIB, 100 * MIB, 100 * MIB, 901 * MIB, 50 * MIB)).peak, 851 * MIB)

    def test_a_reading_that_fails_is_left_out(self):
        self.assertEqual(self.measured(Meter(10, None, 30, None)).peak, 20)
        self.assertIsNone(self.measured(Meter(None)).peak)
        self.assertIsNone(self.measured(None).peak)

    def test_the_time_is_that_of_the_run(self):
        self.assertTrue(0.02 <= self.measured(None).seconds < 5)


class Tables(unittest.TestCase):
    def run_of(self, seconds, peak):
        measured = measure.Measured(None)
        measured.seconds, measured.peak = seconds, peak
        return measured

    def test_the_best_time_and_the_largest_peak_of_both_ways(self):
        results = measure.Results()
        for preloaded, seconds, peak in ((False, 3.0, 600 * MIB), (True, 2.5, 500 * MIB), (False, 2.0, 700 * MIB),
                                         (True, 2.75, None)):
            results.add("cupy", preloaded, self.run_of(seconds, peak))
        results.add("only_plain", False, self.run_of(1, 1))
        results.add("torch", False, self.run_of(1, None))
        results.add("torch", True, self.run_of(1, None))
        self.assertEqual(results.lines(), [
            "| program | s, plain | s, preloaded | MiB, plain | MiB, preloaded |", "|---|--:|--:|--:|--:|",
            "| cupy | 2.00 | 2.50 | 700 | 500 |", "| torch | 1.00 | 1.00 | - | - |"])

    def test_without_a_measurement_there_is_no_table(self):
        self.assertEqual(measure.Results().lines(), [])


class Runs(unittest.TestCase):
    """Programs that need no GPU. There is no library: the loader only warns."""

    def runner(self, rounds):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        runner = check.Runner("/nowhere.so", folder.name, rounds, Meter(0, MIB, 3 * MIB, 0))
        runner.check = "example"
        return runner

    def test_each_round_runs_both_ways(self):
        runner = self.runner(3)
        count = os.path.join(runner.folder, "count")
        command = ("sh", "-c", "echo x >>%s; echo done" % count)
        self.assertEqual(runner.compare(command, expects_cache=False), "0 lines of log")
        with open(count, encoding="utf-8") as file:
            self.assertEqual(len(file.read().split()), 6)
        (name, *_), = runner.results.rows()
        self.assertEqual(name, "example")

    def test_a_program_that_fails_has_no_row(self):
        runner = self.runner(1)
        with self.assertRaises(check.Fail):
            runner.compare(("sh", "-c", '[ -z "$LD_PRELOAD" ]'), expects_cache=False)
        self.assertEqual(list(runner.results.rows()), [])

    def test_arguments(self):
        self.assertEqual(check.arguments_read(["a.so"]), ("a.so", [], 1))
        self.assertEqual(check.arguments_read(["--rounds", "3", "a.so", "cupy"]), ("a.so", ["cupy"], 3))
        for wrong in ([], ["--rounds"], ["--rounds", "0", "a.so"], ["--rounds", "x", "a.so"], ["--help"]):
            with self.assertRaises(SystemExit):
                check.arguments_read(wrong)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
