"""python -m vmmcache"""
import contextlib
import io
import os
import pickle
import subprocess
import sys
import unittest

import vmmcache
from support import MIB, FolderTest, LibraryTest, has_cuda, run_python
from test_check import sound
from vmmcache.__main__ import main

RUN = "import sys; from vmmcache.__main__ import main; sys.exit(main([]))"


class ReportTest(unittest.TestCase):
    def test_what_is_missing_is_told(self):
        status, said = run_python(RUN)
        self.assertEqual(status, 1)
        self.assertIn(vmmcache.version(), said)
        self.assertIn("PyTorch: missing", said)
        self.assertIn("install() would not work", said)

    def test_where_all_is_there_it_says_so(self):
        status, said = run_python(RUN, fake=True)
        self.assertEqual(status, 0, said)
        self.assertIn("PyTorch: 2.11", said)
        self.assertIn("install() would work", said)

    def test_a_library_without_the_cuda_driver_is_told(self):
        said = run_python(RUN, fake=True, VMM_DRIVER="")[1]
        self.assertEqual("was built without the CUDA driver" not in said, has_cuda(), said)

    def test_a_missing_library_is_told(self):
        status, said = run_python(RUN, fake=True, VMMCACHE_LIBRARY="/nowhere/none.so")
        self.assertEqual(status, 1)
        self.assertIn("/nowhere/none.so is missing", said)


    def test_an_output_that_is_closed_early_is_told(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([sys.executable, "-B", "-m", "vmmcache"], text=True, check=False, stdout=writer,
                              stderr=subprocess.PIPE, timeout=60)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (1, "python -m vmmcache: the output could not be written\n"))

    def test_an_output_without_room_is_told(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([sys.executable, "-B", "-m", "vmmcache"], text=True, check=False, stdout=full,
                                  stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, "python -m vmmcache: the output could not be written\n"))


class SnapshotFileTest(LibraryTest, FolderTest):
    def setUp(self):
        super().setUp()
        self.file = self.path("snapshot.pickle")

    def examined(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main([self.file])
        return status, said.getvalue()

    def test_a_sound_snapshot_is_described(self):
        vmmcache.record_history(max_entries=100)
        self.alloc(48 * MIB)
        vmmcache.dump_snapshot(self.file)
        status, said = self.examined()
        self.assertEqual(status, 0, said)
        self.assertIn("device 0: 48.00 MiB live in 1 blocks", said)
        self.assertIn("0 faults", said)

    def test_faults_are_listed(self):
        picture = sound()
        picture["segments"][0]["total_size"] += 512
        self.write("snapshot.pickle", picture)
        status, said = self.examined()
        self.assertEqual(status, 1)
        self.assertIn("segment 0", said)

    def test_what_is_no_snapshot_is_told(self):
        for junk in (b"hello", b"", b"\0" * 99, b"\x80\x04", b"}.}", b"VMMCACHE\n" * 9, b"]a.", b"h\xff.",
                     b"X\4\0\0\0\xff\xff\xff\xff.", b"I1x\n.", pickle.dumps({1, 2, 3}, 4),
                     pickle.dumps({"a": 1}, 4), pickle.dumps(7, 4), pickle.dumps(os.getcwd, 4)):
            self.write("snapshot.pickle", junk)
            self._is_none()
        os.remove(self.file)
        self._is_none()

    def _is_none(self):
        status, said = self.examined()
        self.assertEqual(status, 1, said)
        self.assertIn("is not a snapshot: ", said)
        self.assertEqual(said.count("\n"), 1, said)

    def test_garbage_is_told_whatever_it_makes_of_the_reader(self):
        for garbage in (b"\x80\x04K\x01K\x02a.", b"\x80\x04K\x01)R.", b"\x80\x04}](K\x01u.",
                        b"\x80\x04\x95" + 8 * b"\xff" + b"."):
            self.write("snapshot.pickle", garbage)
            self.assertIn("is not a snapshot", self.examined()[1], garbage)


if __name__ == "__main__":
    unittest.main()
