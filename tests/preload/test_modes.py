"""What VMM_PRELOAD selects, on the fake libcuda.

usage: test_modes.py PROGRAM PRELOAD FOLDER_OF_LIBCUDA FOLDER_OF_OLD_LIBCUDA [FRAGTEST]
"""
import gzip
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PRELOAD, LIBCUDA, OLD_LIBCUDA = sys.argv[1:5]
FRAGTEST = sys.argv[5] if len(sys.argv) > 5 else None
MIB = 1 << 20
ALLOCATE = """
from ctypes import CDLL, byref, c_size_t, c_void_p
cuda, context, block = CDLL("libcuda.so.1"), c_void_p(), c_void_p()
print(cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxPushCurrent_v2(context),
      cuda.cuMemAlloc_v2(byref(block), c_size_t(1 << 20)), cuda.cuMemFree_v2(block))
"""


def run(*command, **environment):
    settings = {name: value for name, value in os.environ.items() if not name.startswith("VMM_")}
    settings.update({"LD_PRELOAD": PRELOAD, "LD_LIBRARY_PATH": LIBCUDA, **environment})
    return subprocess.run(command or (PROGRAM, "proc"), env=settings, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def operations(path):
    with open(path, encoding="utf-8") as file:
        return [line.split() for line in file if line.startswith(("+", "-"))]


class Modes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = os.path.join(folder.name, "out.trace")

    def expect(self, done, served):
        self.assertEqual((done.returncode, done.stdout), (0, "libcuda served %d\n" % served), done.stderr)

    def test_the_cache_serves_by_default(self):
        for mode in ("", "on"):
            done = run(VMM_PRELOAD=mode)
            self.expect(done, 0)
            self.assertEqual(done.stderr, "")

    def test_off_leaves_all_to_libcuda(self):
        self.expect(run(VMM_PRELOAD="off"), 4)

    def test_a_wrong_mode_is_named(self):
        done = run(VMM_PRELOAD="fast")
        self.expect(done, 4)
        self.assertIn("VMM_PRELOAD=fast", done.stderr)

    def test_a_wrong_setting_is_named_and_libcuda_serves(self):
        done = run(VMM_LIMIT="much")
        self.expect(done, 4)
        self.assertIn("VMM_LIMIT", done.stderr)

    def test_a_device_that_refuses_keeps_libcuda(self):
        done = run(FAKE_CUDA_FAIL="cuMemCreate:801")
        self.expect(done, 4)
        self.assertIn("device 0 keeps libcuda's allocator", done.stderr)

    def test_a_libcuda_that_is_too_old_serves(self):
        done = run(sys.executable, "-c", ALLOCATE, LD_LIBRARY_PATH=OLD_LIBCUDA)
        self.assertEqual((done.returncode, done.stdout), (0, "0 0 0 0 0\n"))
        self.assertRegex(done.stderr, r"^libvmmcache_preload: libcuda has no cu\w+, its driver is too old; .*\n$")

    def test_settings_of_the_cache_apply(self):
        log = self.trace + ".log"
        self.expect(run(VMM_LOG=log, VMM_LIMIT="64M"), 0)
        with open(log, encoding="utf-8") as file:
            self.assertTrue(file.read())

    def test_recording_leaves_all_to_libcuda(self):
        for route in ("linked", "dlsym", "proc"):
            done = run(PROGRAM, route, VMM_PRELOAD="record", VMM_TRACE=self.trace)
            self.expect(done, 4)
            found = operations(self.trace)
            self.assertEqual([int(line[2]) for line in found[:4]], [MIB, 2 * MIB, 3 * MIB, 5 * MIB])
            self.assertEqual([line[3] for line in found[:3]], ["0", "0", "0"])
            self.assertNotEqual(found[3][3], "0")
            self.assertEqual(found[4:], [["-", found[1][1]], ["-", found[0][1]], ["-", found[3][1]]])

    def test_a_child_of_a_fork_leaves_the_recording_alone(self):
        """It has no thread that writes, and the file is its parent's."""
        for mode, served in (("record", 4), ("on", 0)):
            self.expect(run(PROGRAM, "proc", "fork", VMM_PRELOAD=mode, VMM_TRACE=self.trace), served)
            self.assertEqual([line[0] for line in operations(self.trace)], ["+"] * 4 + ["-"] * 3)

    def test_the_number_of_the_process_in_the_name(self):
        self.expect(run(VMM_PRELOAD="record", VMM_TRACE=self.trace + ".%p"), 4)
        folder, name = os.path.split(self.trace)
        written, = [file for file in os.listdir(folder) if file.startswith(name + ".")]
        self.assertTrue(written[len(name) + 1:].isdigit(), written)

    def test_a_packed_recording(self):
        self.expect(run(VMM_PRELOAD="record", VMM_TRACE=self.trace + ".gz"), 4)
        with gzip.open(self.trace + ".gz", "rt") as file:
            found = [line[0] for line in file if line[0] in "+-"]
        self.assertEqual(found, ["+"] * 4 + ["-"] * 3)

    def test_stacks_name_the_caller(self):
        run(VMM_PRELOAD="record", VMM_TRACE=self.trace, VMM_TRACE_STACKS="1")
        with open(self.trace, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("#@ frame", text)
        self.assertIn("preload_program", text)

    def test_a_recording_that_cannot_be_written_is_named(self):
        done = run(VMM_PRELOAD="record", VMM_TRACE="/nowhere/out.trace")
        self.expect(done, 4)
        self.assertIn("/nowhere/out.trace", done.stderr)

    def test_the_cache_is_recorded_to_its_end(self):
        self.expect(run(VMM_TRACE=self.trace), 0)
        found = operations(self.trace)
        self.assertEqual(sorted(line[0] for line in found), ["+"] * 4 + ["-"] * 3)

    def test_fragtest_replays_a_recording(self):
        if FRAGTEST is None:
            self.skipTest("fragtest is not built")
        run(VMM_PRELOAD="record", VMM_TRACE=self.trace)
        done = subprocess.run((FRAGTEST, "--trace", self.trace, "--driver", "sim"), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_programs_without_cuda_run_as_before(self):
        done = run("/bin/sh", "-c", "ls / | head -1; exit 3")
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        done = run(sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).cuNoSuchFunction)")
        self.assertIn("cuNoSuchFunction", done.stderr)
        # cuserid() of the C library begins like functions of libcuda
        done = run(sys.executable, "-c", "import ctypes; ctypes.CDLL(None).cuserid; "
                   "print('libcuda.so' in open('/proc/self/maps').read())")
        self.assertEqual((done.stdout, done.stderr), ("False\n", ""))


unittest.main(argv=sys.argv[:1], verbosity=2)
