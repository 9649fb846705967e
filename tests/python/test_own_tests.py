"""tools/torch/own_tests.py on a made-up checkout, with a fake PyTorch that has a GPU."""
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from support import FAKE, HERE, FolderTest

PROGRAM = os.path.join(HERE, "..", "..", "tools", "torch", "own_tests.py")
TESTS = """
import os, time, unittest
import torch
from torch.cuda import not_there, NoTest
from torch.accelerator import TEST_CUDA

IS_OURS = torch.cuda.get_allocator_backend() == 'vmmcache'

@not_there('a word')
class TestOne(unittest.TestCase):
    left = []

    def test_passes(self):
        assert TEST_CUDA and NoTest is object

    def test_fails_with_both(self):
        self.assertEqual(1, 2, 'the\\nsecond | line')

    def test_fails_with_ours(self):
        print('said before')
        assert not IS_OURS, 'it is ours'

    def test_fails_with_native(self):
        assert IS_OURS

    def test_ends_the_process(self):
        if IS_OURS:
            os._exit(3)

    def test_hangs(self):
        if IS_OURS:
            time.sleep(60)

    def test_loses_the_context(self):
        self.left.append(1)
        raise RuntimeError('/some/where/there.py: CUDA error: an illegal memory access was encountered')

    def test_must_not_be_behind_a_lost_context(self):
        assert not self.left

    def test_skips(self):
        self.skipTest('no reason')

    def test_skips_with_ours(self):
        if IS_OURS:
            self.skipTest('no reason')

    def test_fails_the_first_time(self):
        if IS_OURS and not os.path.exists(%r):
            open(%r, 'w').close()
            raise AssertionError('the first time')

    @unittest.expectedFailure
    def test_fails_as_expected(self):
        assert False

class TestTwo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if IS_OURS:
            raise RuntimeError('it cannot begin')

    def test_needs_its_class(self):
        pass

class TestOneCPU(unittest.TestCase):
    def test_needs_no_gpu(self):
        assert False
"""
CUPY_TESTS = """
import cupy, pytest

@pytest.mark.parametrize('size', (1, 2))
class TestArrays:
    def test_frees(self, size):
        assert cupy.cuda.get_allocator() is None or size == 1, 'ours'
        cupy.cuda.set_allocator(None)

    def test_has_the_allocator_again(self, size):
        print('said')
        assert cupy.cuda.get_allocator() is not None, 'the own one'

    @pytest.mark.skip(reason='no reason')
    def test_skips(self, size):
        pass
"""


class OwnTestsTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.out = self.path("out")
        self.write("expecttest.py", "")
        self.write("version.txt", "2.99.0\n")
        self.write("test/test_cuda.py", TESTS % ((self.path("mark"),) * 2))

    def start(self, *arguments, tests=None):
        paths = [os.path.relpath(each) for each in (FAKE, self.folder, *os.environ["PYTHONPATH"].split(os.pathsep))]
        env = {**os.environ, "COMMIT": "0123abc", "PYTHONPATH": os.pathsep.join(paths),
               "VMMCACHE_LIBRARY": os.path.relpath(os.environ["VMMCACHE_LIBRARY"])}
        return subprocess.Popen(
            [sys.executable, "-B", PROGRAM, "--tests", tests or self.folder, "--out", self.out, "--plugin",
             "--jobs", "4", *arguments], text=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_it(self, *arguments, tests=None):
        process = self.start(*arguments, tests=tests)
        said = process.communicate(timeout=100)[0]
        return process.returncode, said

    def page(self):
        with open(os.path.join(self.out, "torch_own.md"), encoding="utf-8") as file:
            return file.read()

    def section(self, head, count=r" \(\d+\)"):
        found = re.search(r"^## %s%s\n\n(.*?)^$" % (head, count), self.page(), re.DOTALL | re.M)
        self.assertIsNotNone(found, self.page())
        return found.group(1)

    def test_each_test_has_its_column_and_its_reasons(self):
        status, said = self.run_it("--seconds", "5")
        self.assertEqual(status, 1, said)
        page = self.page()
        for text in ("PyTorch 2.99.0", "0123abc", "**Failed only with vmmcache: 5** of 13.", "fake",
                     "| test_cuda.py | 3 | 2 | 1 | 1 | 5 | 1 | 0 |",
                     "torch.accelerator.TEST_CUDA, torch.cuda.NoTest, torch.cuda.not_there"):
            self.assertIn(text, page + "fake")
        self.assertIn("failed only with vmmcache: 5", said)
        ours = self.section("Failed only with vmmcache")
        for text in ("* test_cuda.py, `TestOne.test_fails_with_ours`\n  * native: PASS\n  * native, alone: PASS\n"
                     "  * vmmcache: FAIL: AssertionError: it is ours\n"
                     "  * vmmcache, alone: FAIL: AssertionError: it is ours\n",
                     "  * vmmcache: FAIL: status 3\n", "RuntimeError: it cannot begin",
                     "  * vmmcache: FAIL: it did not end within 5 s\n",
                     "`TestOne.test_fails_the_first_time`\n  * native: PASS\n  * native, alone: PASS\n"
                     "  * vmmcache: FAIL: AssertionError: the first time\n  * vmmcache, alone: PASS\n"):
            self.assertIn(text, ours)
        self.assertIn("native: FAIL: AssertionError: 1 != 2 : the second \\| line", self.section("Failed with both"))
        self.assertIn("FAIL: RuntimeError: there.py: CUDA error", self.section("Failed with both"))
        self.assertIn("test_fails_with_native", self.section("Failed only with native"))
        self.assertIn("vmmcache: SKIP: no reason", self.section("Skipped with one"))
        self.assertNotIn("test_needs_no_gpu", page)

    def test_without_a_difference_it_succeeds(self):
        status, said = self.run_it("--only", "passes|fails_with_both|skips$", "test_cuda.py")
        self.assertEqual(status, 0, said)
        self.assertIn("**Failed only with vmmcache: 0** of 3.", self.page())
        with open(os.path.join(self.out, "results.jsonl"), encoding="utf-8") as file:
            results = [json.loads(line) for line in file]
        self.assertEqual(len(results), 6)
        self.assertTrue(any("self.assertEqual(1, 2" in each["text"] for each in results))

    def test_what_is_wrong_is_one_line(self):
        for arguments, tests, words in (
                ((), HERE, "is no checkout of PyTorch"), ((), "/nowhere", "is no checkout of PyTorch"),
                (("test_cuda.py", "test_other.py"), None, "there is no test_other.py in")):
            status, said = self.run_it(*arguments, tests=tests)
            self.assertEqual(status, 1)
            self.assertEqual(len(said.splitlines()), 1, said)
            self.assertIn("error: ", said)
            self.assertIn(words, said)
        os.remove(self.path("expecttest.py"))
        self.assertIn("pip install expecttest", self.run_it()[1])

    def test_a_file_that_cannot_be_read_is_listed(self):
        self.write("test/test_cuda_trace.py", "import torch\nraise ValueError('too new')\n")
        status, said = self.run_it("--only", "passes")
        self.assertEqual(status, 0, said)
        self.assertIn("* test_cuda_trace.py: status 1: ValueError: too new", self.page())
        self.assertIn("* there is no inductor/test_cudagraph_trees.py", self.page())

    def test_a_run_that_is_ended_leaves_what_it_has(self):
        for number in (signal.SIGTERM, None):  # None: its time is up
            process = self.start("--only", "fails_with_native|hangs", *(() if number else ("--budget", "8")))
            if number:
                for line in process.stdout:
                    if line.endswith(" tests\n"):
                        break
                time.sleep(4)
                process.send_signal(number)
            said = process.communicate(timeout=60)[0]
            self.assertIn("failed only with vmmcache: 0", said)
            self.assertIn("| test_cuda.py | 0 | 0 | 0 | 1 | 0 | 0 | 1 |", self.page())

    def test_the_crash_of_a_process_that_is_done_counts(self):
        self.write("test/test_cuda.py", "import atexit, os, unittest, torch\n"
                   "if torch.cuda.get_allocator_backend() == 'vmmcache':\n    atexit.register(os._exit, 4)\n"
                   "class TestOne(unittest.TestCase):\n    def test_it(self): pass\n")
        status, said = self.run_it()
        self.assertEqual(status, 1, said)
        self.assertIn("vmmcache: FAIL: status 4", self.section("Failed only with vmmcache"))

    @unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is missing")
    def test_a_folder_of_cupy(self):
        self.write("tests/cupy_tests/core_tests/test_core.py", CUPY_TESTS)
        self.write("tests/cupy_tests/core_tests/test_broken.py", "import no_such_module\n")
        status, said = self.run_it("cupy_tests/core_tests/")
        self.assertEqual(status, 1, said)
        self.assertIn("| cupy_tests/core_tests | 1 | 0 | 2 | 2 | 1 | 0 | 0 |", self.page())
        self.assertIn("core_tests/test_broken.py: ", self.section("Files", ""))
        self.assertIn("* cupy_tests/core_tests/test_core.py, `::TestArrays::test_frees[2]`\n  * native: PASS\n"
                      "  * native, alone: PASS\n  * vmmcache: FAIL: AssertionError: ours",
                      self.section("Failed only with vmmcache"))


if __name__ == "__main__":
    unittest.main()
