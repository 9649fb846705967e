"""Processes that publish, in a folder of their own, and vmmtop beside them."""
import json
import os
import subprocess
import tempfile
import time
import unittest

TOP = os.environ["VMM_TEST_TOP"]
WORKER = os.environ["VMM_TEST_WORKER"]
MIB = 1 << 20


class Worker:
    """tests/vmmtop/worker.c, which says what its lines mean."""

    def __init__(self, folder, **environment):
        self.process = subprocess.Popen([WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, VMM_MONITOR=folder, **environment))
        self.pid = self.process.pid
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if line != "ok\n":
            raise AssertionError("worker: %r" % line)

    def do(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            self.answer()

    def raw(self, line):
        """A line of any bytes."""
        self.process.stdin.buffer.write(line)
        self.process.stdin.buffer.flush()
        self.answer()

    def close(self):
        """Lets it exit with its caches alive."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        status = self.process.wait(30)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


class TopTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def worker(self):
        worker = Worker(self.folder)
        self.addCleanup(worker.kill)
        return worker

    def top(self, *arguments, code=0):
        """Returns what vmmtop prints; to standard error, if that is where it prints."""
        run = subprocess.run([TOP, "--dir", self.folder, *arguments], capture_output=True, text=True, timeout=60,
                             stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout if code == 0 else run.stderr

    def read(self, *arguments):
        return json.loads(self.top("--json", *arguments))

    def until(self, what, holds, seconds=20):
        """Returns the first what() for which holds(what())."""
        end = time.monotonic() + seconds
        found = what()
        while not holds(found):
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.05)
            found = what()
        return found

    def cache_when(self, holds):
        """The first cache of the one process, once that holds."""
        def cache():
            processes = self.read()["processes"]
            return processes[0]["caches"][0] if processes else {}
        return self.until(cache, lambda found: found and holds(found))
