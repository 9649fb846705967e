"""The runner of the checks for a GPU, with a fake PyTorch that has one."""
import os
import unittest

from support import HERE, FolderTest, start_python

TOOLS = os.path.join(HERE, "..", "..", "tools", "torch")
PROGRAM = """'Checks for a test.'
import os, sys
sys.path.insert(0, %r)
import checks

def check_works():
    'works'
    return 'with ' + checks.kind()

def check_fails():
    'fails'
    print('a line before')
    checks.expect(checks.kind() != 'new', 'it is new')

def check_ends():
    'ends'
    os._exit(3)

def check_skips():
    'skips'
    raise checks.Skip('no reason')

def check_ends_later():
    'ends later'
    import atexit
    atexit.register(os._exit, 4)

checks.main(__file__, checks.find(dict(globals())), ['old', 'new'], sys.argv[1:], alone=['works', 'skips'], jobs=2)
""" % TOOLS


class ChecksTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.program = self.write("program.py", PROGRAM)

    def run_checks(self, *arguments, fake=True):
        status, said = start_python(self.program, *arguments, fake=fake)
        return status, said.splitlines()

    def test_each_check_has_a_line_for_each_kind(self):
        status, said = self.run_checks("works", "skips")
        self.assertEqual(status, 0, said)
        self.assertEqual([" ".join(line.split()) for line in said], [
            "PASS old works works: with old", "SKIP old skips skips: no reason",
            "PASS new works works: with new", "SKIP new skips skips: no reason", "4 checks, 0 failed"])
        self.assertEqual(self.run_checks("--help", fake=False)[1], ["Checks for a test."])

    def test_a_failure_is_told_with_the_end_of_its_output(self):
        status, said = self.run_checks("--new", "fails", "ends", "ends_later")
        self.assertEqual(status, 1)
        failed = {" ".join(line.split()) for line in said if line.startswith("FAIL")}
        self.assertEqual(failed, {"FAIL new fails fails: status 1: AssertionError: it is new",
                                  "FAIL new ends ends: status 3", "FAIL new ends_later ends later: status 4"})
        self.assertIn("      | a line before", said)
        self.assertEqual(said[-1], "3 checks, 3 failed")

    def test_unknown_names_are_told(self):
        for argument in ("nothing", "--nothing"):
            status, said = self.run_checks(argument)
            self.assertEqual((status, said), (
                1, ["unknown: nothing; there are --old, --new and works, fails, ends, skips, ends_later"]))

    def test_without_pytorch_it_is_skipped_unless_it_must_not(self):
        self.write("torch.py", "raise ImportError\n")
        tools = [os.path.join(TOOLS, name) for name in ("sleep_check.py", "native_check.py", "clock_check.py")]
        for program in (self.program, *tools):
            for required, status in (("0", 77), ("1", 1)):
                found = start_python(program, PYTHONPATH=self.folder, VMM_REQUIRE_GPU=required)
                self.assertEqual(found[0], status, found[1])


if __name__ == "__main__":
    unittest.main()
