"""What the tests of the Python package share."""
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from vmmcache import _library, record_history

HERE = os.path.dirname(os.path.abspath(__file__))
FAKE = os.path.join(HERE, "fake")
MIB = 1 << 20
GRANULE = 2 * MIB


def alloc(size, device=0, stream=None):
    """A block; the test fails without."""
    address = _library.load().vmm_torch_try_alloc(size, device, stream)
    if address is None:
        raise AssertionError(_library.last_error())
    return address


def free(address, size=0, device=0):
    _library.load().vmm_torch_free(address, size, device, None)


def has_cuda():
    """Whether the library was built with its CUDA driver."""
    return bool(_library.load().vmm_has_driver(1))


def start_python(*arguments, fake=False, cwd=None, **environment):
    """Starts Python with arguments and returns (exit status, all of its output). fake: with tests' own modules torch
    and cupy, which have only the interface. Warnings are silent unless PYTHONWARNINGS is given."""
    ours = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
    if fake:
        ours["PYTHONPATH"] = os.pathsep.join([FAKE, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-B", *arguments], env=ours, cwd=cwd, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.returncode, done.stdout


def run_python(code, **more):
    """Runs a program in a process of its own: see start_python()."""
    return start_python("-c", code, **more)


class FolderTest(unittest.TestCase):
    """Has a folder for the files of each test."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, *name.split("/"))

    def write(self, name, content):
        """Writes a file: bytes, a text, or anything else as a pickle; returns its path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode() if isinstance(content, str)
                       else pickle.dumps(content, protocol=4))
        return path


class LibraryTest(unittest.TestCase):
    """Frees what a test allocated, and ends what it recorded."""

    def setUp(self):
        super().setUp()
        self._blocks = []
        self.addCleanup(record_history, None)
        self.addCleanup(self._free_all)

    def alloc(self, size, device=0, stream=None):
        address = alloc(size, device, stream)
        self._blocks.append((address, size, device))
        return address

    def free(self, address):
        block = next(block for block in self._blocks if block[0] == address)
        self._blocks.remove(block)
        free(*block)

    def _free_all(self):
        for block in self._blocks:
            free(*block)
        self._blocks.clear()


class ProgramTest(unittest.TestCase):
    """Tests that need a process each, since an allocator is put in place only once."""

    def succeeds(self, code, fake=True, **environment):
        status, said = run_python(code, fake=fake, **environment)
        self.assertEqual(status, 0, said)
        return said

    def fails(self, code, *expected, fake=True, **environment):
        """Ends with an exception whose text has all that is expected."""
        status, said = run_python(code, fake=fake, **environment)
        self.assertEqual(status, 1, said)
        for text in expected:
            self.assertIn(text, said)
