"""jobs.py: however a worker ends, each workload has a record."""
import contextlib
import io
import json
import os
import tempfile
import unittest

import jobs

FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_worker.py")


class Jobs(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, jobs, "WORKER", jobs.WORKER)
        jobs.WORKER = FAKE
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_job(self, *names):
        """Returns {(kind, workload): its error}."""
        with contextlib.redirect_stdout(io.StringIO()):
            jobs.Job("steps", "native", 0, dict.fromkeys(names, 3), self.folder).run()
        found = {}
        for name in os.listdir(self.folder):
            if name.endswith(".json"):
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    record = json.load(file)
                found[record["kind"], record["workload"]] = record["error"]
        return found

    def test_all_succeed(self):
        self.assertEqual(self.run_job("a", "b"), {("steps", "a"): None, ("steps", "b"): None})

    def test_dead_worker_fails_its_workload_only(self):
        found = self.run_job("a", "crash", "b")
        self.assertIn("signal 9", found["steps", "crash"]["message"])
        self.assertIsNone(found["steps", "a"])
        self.assertIsNone(found["steps", "b"])

    def test_broken_device_fails_its_workload_only(self):
        found = self.run_job("spoil", "b")
        self.assertEqual(found["steps", "spoil"]["message"], "spoiled")
        self.assertIsNone(found["steps", "b"])
        self.assertEqual(len(found), 2)

    def test_worker_that_does_not_start_fails_every_workload(self):
        found = self.run_job("lame", "b")
        self.assertEqual({key: error["type"] for key, error in found.items()},
                         {("steps", "lame"): "process died", ("steps", "b"): "process died"})

    def test_failure_after_the_last_workload_is_reported(self):
        found = self.run_job("a", "late")
        self.assertIsNone(found["steps", "late"])
        self.assertIn("status 7", found["exit", "steps"]["message"])

    def test_records_of_an_earlier_run_do_not_count(self):
        with open(os.path.join(self.folder, "steps.crash.native.0.json"), "w", encoding="utf-8") as file:
            json.dump({"kind": "steps", "workload": "crash", "error": None}, file)
        self.assertIsNotNone(self.run_job("crash")["steps", "crash"])

    def test_silence_ends_a_process(self):
        self.addCleanup(setattr, jobs, "WORKLOAD_SECONDS", jobs.WORKLOAD_SECONDS)
        jobs.WORKLOAD_SECONDS = 0.5
        found = self.run_job("silent", "b")
        self.assertIn("did not end", found["steps", "silent"]["message"])
        self.assertIsNone(found["steps", "b"])

    def test_a_job_that_is_left_out_ends(self):
        job = jobs.Job("steps", "native", 0, {"a": 3}, self.folder)
        job.batch.end()
        self.assertIsNotNone(job.batch.process.returncode)


if __name__ == "__main__":
    unittest.main()
