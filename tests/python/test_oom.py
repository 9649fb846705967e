"""Functions that the package calls when a request has failed."""
import unittest

from support import ProgramTest

BEGIN = """
import torch, vmmcache
from support import alloc, free, MIB
from vmmcache import _library
vmmcache.set_memory_limit('32MiB', 0)
told = []
def refused(size):
    assert _library.load().vmm_torch_try_alloc(size, 0, None) is None
    return _library.last_error()
"""


class OomTest(ProgramTest):
    def test_observers_are_told_before_the_program_is(self):
        self.succeeds(BEGIN + """
before = refused(64 * MIB)
vmmcache.on_out_of_memory(lambda *what: told.append(what))
vmmcache.on_out_of_memory(lambda *what: told.append('second'))
alloc(16 * MIB)
refused(63 * MIB)
free_bytes = vmmcache.mem_get_info(0)[0]
assert told == [(0, 63 * MIB, 32 * MIB, free_bytes), 'second'], told
""")

    def test_what_they_do_is_not_told_again_and_the_report_stays(self):
        self.succeeds(BEGIN + """
plain = refused(64 * MIB)
def observe(device, size, most, left):
    told.append(size)
    refused(48 * MIB)
    assert vmmcache.check_snapshot(vmmcache.snapshot()) == []
    free(alloc(MIB))
vmmcache.record_history()
vmmcache.on_out_of_memory(observe)
assert refused(64 * MIB) == plain
assert told == [64 * MIB], told
assert [event['size'] for event in vmmcache.snapshot()['device_traces'][0] if event['action'] == 'oom'] == [
    64 * MIB, 48 * MIB]
""")

    def test_what_they_raise_is_written_and_others_are_told(self):
        said = self.succeeds(BEGIN + """
def fails(*_):
    raise RuntimeError('oh dear')
vmmcache.on_out_of_memory(fails)
vmmcache.on_out_of_memory(lambda *what: told.append(what))
refused(64 * MIB)
assert len(told) == 1
""")
        self.assertIn("oh dear", said)

    def test_patched_pytorch_has_it_too(self):
        self.succeeds("""
import torch, vmmcache
from support import MIB
from vmmcache import _library
vmmcache.install(patch=True, limit='32MiB')
told = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, size, most, left: told.append((device, size)))
assert _library.load().vmm_torch_try_alloc(64 * MIB, 0, None) is None
assert told == [(0, 64 * MIB)], told
""")

    def test_what_cannot_be_called_is_refused(self):
        self.fails(BEGIN + "vmmcache.on_out_of_memory(5)", "TypeError")


if __name__ == "__main__":
    unittest.main()
