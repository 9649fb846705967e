"""trace(): the file has what was done, and the report reads it."""
import os
import unittest
import warnings

import vmmcache
from support import MIB, FolderTest, LibraryTest
from vmmcache import VmmError, VmmWarning, report_trace


def recording(path):
    with open(path, "rb") as file:
        return report_trace.read(file, path, "test")


class TraceTest(LibraryTest, FolderTest):
    def setUp(self):
        super().setUp()
        self.trace = self.path("run.trace")

    def test_blocks_are_those_that_were_allocated(self):
        before = self.alloc(MIB)
        with vmmcache.trace(self.trace):
            first = self.alloc(3000)
            second = self.alloc(5 * MIB)
            self.free(first)
        self.free(second)
        found = recording(self.trace)
        sizes = dict(zip(found.address, found.bytes))
        self.assertEqual({address: sizes[address] for address in (before, first, second)},
                         {before: MIB, first: 3000, second: 5 * MIB})
        ended = {address for address, life in zip(found.address, found.life) if life}
        self.assertEqual(ended, {first})

    def test_reserved_memory_is_that_of_the_statistics(self):
        with vmmcache.trace(self.trace):
            self.alloc(5 * MIB)
            reserved = vmmcache.memory_reserved(0)
        spans = recording(self.trace).spans
        self.assertEqual(sum(size for size, life in zip(spans.bytes, spans.life) if not life), reserved)

    def test_stacks_and_notes_are_recorded(self):
        with vmmcache.trace(self.trace, stacks=True):
            self.alloc(1000)
            vmmcache.trace_note("step 1")
        found = recording(self.trace)
        self.assertGreater(found.frame[-1], 0)
        self.assertIn("step 1", [text for _, text in found.notes])

    def test_an_exception_ends_the_recording(self):
        with self.assertRaises(KeyError):
            with vmmcache.trace(self.trace):
                raise KeyError
        with vmmcache.trace(self.trace):
            self.alloc(MIB)

    def test_a_recording_without_an_allocation_warns(self):
        with vmmcache.Cache() as cache:
            with self.assertWarnsRegex(VmmWarning, "run.trace has no allocation.*Cache.trace") as caught:
                with vmmcache.trace(self.trace):
                    cache.alloc(MIB).free()
        self.assertEqual(caught.filename, __file__)

    def test_a_recording_of_any_block_does_not_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with vmmcache.trace(self.trace):
                self.free(self.alloc(MIB))
            before = self.alloc(MIB)
            with vmmcache.trace(self.trace):
                pass
            with vmmcache.trace(self.trace):
                self.free(before)

    def test_what_cannot_be_written_is_refused(self):
        with self.assertRaisesRegex(VmmError, "No such file"):
            with vmmcache.trace("/nowhere/run.trace"):
                self.fail("the statement ran")
        with vmmcache.trace(self.trace):
            self.alloc(MIB)
            with self.assertRaisesRegex(VmmError, "recorded already"):
                with vmmcache.trace(self.trace):
                    self.fail("the statement ran")
        with self.assertRaisesRegex(ValueError, "zero byte"):
            with vmmcache.trace(self.trace + "\0.gz"):
                self.fail("the statement ran")


if __name__ == "__main__":
    unittest.main()
