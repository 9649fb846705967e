"""What the tests of the report share."""
import io
import os
import tempfile
import unittest
from contextlib import redirect_stderr

from vmmcache import report

MIB = 1 << 20

# A trace with each kind of note.
NOTES = "\n".join((
    "#@ frame 1 0 main (a.py:1)", "#@ frame 2 1 step (a.py:9)", "#@ stream 5 copies", "#@ pool 4 graphs",
    "#@ chunk 2097152", "#@ home 3 4194304 2097152",
    "#@ place 3 8388608", "#@ next time=1000", "#@ map 4194304 2097152 5",
    "#@ next time=1500 frame=2 address=4194304 pool=4", "+ 1 4096 5", "#@ name 1 a batch",
    "#@ wait 1", "#@ next time=1700", "- 1", "#@ note step 2 begins", "#@ gone 8388608",
    "#@ unmap 4194304 2097152", "#@ hue 7"))


class FileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, data, name="some.trace"):
        with open(self.path(name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return self.path(name)

    def read(self, data, name="some.trace", **more):
        return report.read(self.write(data, name), **more)

    def run_report(self, path, *more):
        """(exit status, what it wrote to stderr)"""
        said = io.StringIO()
        with redirect_stderr(said):
            status = report.main([path, "-o", self.path("page.html"), *more])
        return status, said.getvalue()
