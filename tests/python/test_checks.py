"""The runner of the checks for a GPU, with a fake PyTorch that has one."""
import os
import subprocess
import sys
import tempfile
import unittest

from support import FAKE, HERE

TOOLS = os.path.join(HERE, "..", "..", "tools", "torch")
CHECKS = """
def check_%sworks():
    'works'
    return 'with ' + checks.kind()

def check_%sfails():
    'fails'
    print('a line before')
    checks.expect(checks.kind() != 'new', 'it is new')
"""
PROGRAM = """
import os, sys
sys.path.insert(0, %r)
import checks

%s
def check_ends():
    'ends'
    os._exit(3)

def check_skips():
    'skips'
    raise checks.Skip('no reason')

checks.main(__file__, checks.find(dict(globals())), ['old', 'new'], sys.argv[1:])
""" % (TOOLS, CHECKS % ("", ""))

GROUPS = """
import os, sys
sys.path.insert(0, %r)
import checks
from groups import Runner

%s
def check_one_skips():
    'skips'
    raise checks.Skip('no reason')

def check_two_breaks():
    'breaks'
    os._exit(3)

def check_two_ends():
    'ends'
    import atexit
    if checks.kind() == 'new':
        atexit.register(os._exit, 4)

runner = Runner(__file__, checks.find(dict(globals())), ['old', 'new'])
if sys.argv[1] == '--one':
    runner.run_here(sys.argv[3:])
else:
    runner.run(sys.argv[1].split(','), list(runner.checks))
""" % (TOOLS, CHECKS % ("one_", "one_"))


class ChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "program.py")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def run_checks(self, *arguments, program=None, **environment):
        done = subprocess.run([sys.executable, "-B", program or self.path, *arguments], text=True, check=False,
                              timeout=60,
                              env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.splitlines()

    def test_each_check_has_a_line_for_each_kind(self):
        status, said = self.run_checks("works", "skips", PYTHONPATH=FAKE)
        self.assertEqual(status, 0, said)
        self.assertEqual([" ".join(line.split()) for line in said], [
            "PASS old works works: with old", "SKIP old skips skips: no reason", "PASS new works works: with new",
            "SKIP new skips skips: no reason", "4 checks, 0 failed"])

    def test_a_failure_is_told_with_the_end_of_its_output(self):
        status, said = self.run_checks("--new", "fails", "ends", PYTHONPATH=FAKE)
        self.assertEqual(status, 1)
        self.assertIn("status 1: AssertionError: it is new", said[0])
        self.assertIn("      | a line before", said)
        self.assertTrue(any("FAIL" in line and "status 3" in line for line in said), said)
        self.assertEqual(said[-1], "2 checks, 2 failed")

    def test_unknown_names_are_told(self):
        for argument in ("nothing", "--nothing"):
            status, said = self.run_checks(argument, PYTHONPATH=FAKE)
            self.assertEqual((status, said),
                             (1, ["unknown: nothing; there are --old, --new and works, fails, ends, skips"]))

    def test_without_pytorch_it_is_skipped_unless_it_must_not(self):
        folder = os.path.dirname(self.path)
        with open(os.path.join(folder, "torch.py"), "w", encoding="ascii") as file:
            file.write("raise ImportError\n")
        tools = [os.path.join(TOOLS, name)
                 for name in ("sleep_check.py", "native_check.py", "own_check.py")]
        for program in (self.path, *tools):
            self.assertEqual(self.run_checks(program=program, PYTHONPATH=folder, VMM_REQUIRE_GPU="0")[0], 77)
            self.assertEqual(self.run_checks(program=program, PYTHONPATH=folder, VMM_REQUIRE_GPU="1")[0], 1)

    def run_groups(self, kinds):
        path = os.path.join(os.path.dirname(self.path), "groups.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(GROUPS)
        return self.run_checks(kinds, program=path, PYTHONPATH=FAKE)

    def test_groups_go_on_after_a_failure_and_compare_kinds(self):
        status, said = self.run_groups("old,new")
        self.assertEqual(status, 1)
        lines = sorted(" ".join(line.split()) for line in said if line[:4] in ("PASS", "FAIL", "SKIP"))
        self.assertEqual(lines, [
            "FAIL new one_fails fails: status 1: AssertionError: it is new", "FAIL new two_breaks breaks: status 3",
            "FAIL new two_ends ends: status 4", "FAIL old two_breaks breaks: status 3",
            "PASS new one_works works: with new", "PASS new two_ends ends", "PASS old one_fails fails",
            "PASS old one_works works: with old", "PASS old two_ends ends", "SKIP new one_skips skips: no reason",
            "SKIP old one_skips skips: no reason"])
        self.assertIn("      | a line before", said)
        self.assertEqual(said[-3:], [
            "new: 5 checks, 2 failed: one_fails, two_ends", "new: fails like old, which is no failure: two_breaks",
            "old: 1 failed: two_breaks"])

    def test_groups_count_every_failure_of_a_single_kind(self):
        status, said = self.run_groups("old")
        self.assertEqual((status, said[-1]), (1, "old: 5 checks, 1 failed: two_breaks"))


if __name__ == "__main__":
    unittest.main()
