"""Our function in the place of a virtual one: cuDNN's benchmark mode."""
import os
import unittest

from support import ProgramTest

# Built of member.cpp beside the other tests.
LIBRARY = os.environ.get("VMM_TEST_MEMBER", "")

BEGIN = """
import ctypes, os, torch, vmmcache
from support import MIB
library = ctypes.CDLL(os.environ['VMM_TEST_MEMBER'])
library.ask_cache_info.restype = ctypes.c_size_t
"""


class MemberTest(ProgramTest):
    def setUp(self):
        self.assertTrue(os.path.exists(LIBRARY), "VMM_TEST_MEMBER names no library")

    def test_benchmark_mode_is_told_what_there_is(self):
        self.succeeds(BEGIN + """
assert library.ask_cache_info(0) == 12345
vmmcache.install(patch=True)
assert vmmcache.capabilities()['cudnn_benchmark']
free, total = vmmcache.mem_get_info(0)
assert library.ask_cache_info(0) >= free, (library.ask_cache_info(0), free)
vmmcache.set_memory_limit('64MiB', 0)
vmmcache.empty_cache()
assert library.ask_cache_info(0) == 64 * MIB
tensor = torch.cuda.caching_allocator_alloc(16 * MIB)
assert library.ask_cache_info(0) == 48 * MIB, library.ask_cache_info(0)
assert library.ask_others() == 12
""")

    def test_the_table_is_for_reading_only_afterwards_as_before(self):
        self.succeeds(BEGIN + """
from vmmcache import _member
table = '_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE'
address = _member._address(library, table)
before = _member._is_writable(address)
vmmcache.install(patch=True)
assert vmmcache.capabilities()['cudnn_benchmark']
assert _member._is_writable(address) == before
""")

    def test_without_patch_nothing_is_changed(self):
        self.succeeds(BEGIN + """
vmmcache.install(patch=False)
assert not vmmcache.capabilities()['cudnn_benchmark']
assert library.ask_cache_info(0) == 12345
""")

    def test_what_is_not_found_is_not_changed(self):
        self.succeeds(BEGIN + """
from vmmcache import _member
class_name = 'N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator'
ours = ctypes.cast(vmmcache._library.load().vmm_torch_cache_info, ctypes.c_void_p).value
for names in (('libnothing.so', '_ZTV' + class_name + 'E', '_Z' + class_name + '9cacheInfoEaPm'),
              ('libtorch_cuda.so', '_ZTVnothing', '_Z' + class_name + '9cacheInfoEaPm'),
              ('libtorch_cuda.so', '_ZTV' + class_name + 'E', 'nothing'),
              ('libtorch_cuda.so', '_ZTV' + class_name + 'E', 'ask_others')):
    assert not _member.replace(*names, ours), names
assert library.ask_cache_info(0) == 12345
""")

    def test_a_pytorch_without_the_class_is_told(self):
        self.succeeds("""
import torch, vmmcache
vmmcache.install(patch=True)
assert not vmmcache.capabilities()['cudnn_benchmark']
""")


if __name__ == "__main__":
    unittest.main()
