"""install_cupy() into a fake CuPy that has only the interface."""
import unittest

from support import ProgramTest

BEGIN = """
import cupy, vmmcache
from support import MIB
"""


class CupyTest(ProgramTest):
    def test_a_missing_cupy_is_told(self):
        self.fails("import vmmcache; vmmcache.install_cupy()", "InstallError", "CuPy cannot be imported",
                   fake=False)

    def test_a_cupy_that_is_too_old_is_told(self):
        self.fails(BEGIN + "del cupy.cuda.PythonFunctionAllocator\nvmmcache.install_cupy()",
                   "8 and later do")

    def test_arrays_come_from_the_library(self):
        self.succeeds(BEGIN + """
vmmcache.install_cupy()
vmmcache.install_cupy()
array = cupy.Array(8 * MIB)
assert vmmcache.memory_allocated() == 8 * MIB
del array
assert vmmcache.memory_allocated() == 0
""")

    def test_running_out_of_memory_is_cupys_error_with_our_report(self):
        self.succeeds(BEGIN + """
vmmcache.install_cupy()
vmmcache.set_memory_limit('32MiB')
try:
    cupy.Array(64 * MIB)
except cupy.cuda.memory.OutOfMemoryError as error:
    assert '64' in str(error) and 'limit' in str(error), error
else:
    raise SystemExit('no error')
small = cupy.Array(16 * MIB)
assert vmmcache.memory_allocated() == 16 * MIB
""")

    def test_a_stream_lives_until_the_library_knows_that_it_ends(self):
        self.succeeds(BEGIN + """
from vmmcache import _library
library = _library.load()
ended = []
true_end = library.vmm_stream_end
def end(cache, handle):
    ended.append(handle)
    return true_end(cache, handle)
library.vmm_stream_end = end
vmmcache.install_cupy()
Stream = cupy.cuda.Stream
first = Stream(0x100)
first.use()
array = cupy.Array(8 * MIB)
other = cupy.Array(8 * MIB)
del first
assert Stream.destroyed == [] and ended == []
second = Stream(0x200)
second.use()
third = cupy.Array(8 * MIB)
assert ended == [0x100] and Stream.destroyed == [0x100], (ended, Stream.destroyed)
Stream(0x300).use()
fourth = cupy.Array(8 * MIB)
assert ended == [0x100], ended
del array, other
del second
again = Stream(0x100)
again.use()
fifth = cupy.Array(8 * MIB)
assert ended == [0x100, 0x200] and Stream.destroyed == [0x100, 0x300, 0x200], (ended, Stream.destroyed)
""")


if __name__ == "__main__":
    unittest.main()
