"""Numba's memory manager with a fake Numba that has only the interface."""
import unittest

from support import ProgramTest

BEGIN = """
import vmmcache.numba
from numba.cuda.cudadrv.driver import Context
from support import MIB
context = Context()
manager = vmmcache.numba.MemoryManager(context=context)
manager.initialize()
manager.initialize()
"""


class NumbaTest(ProgramTest):
    def test_arrays_come_from_the_library(self):
        self.succeeds(BEGIN + """
assert vmmcache.numba._numba_memory_manager is vmmcache.numba.MemoryManager and manager.interface_version == 1
memory = manager.memalloc(8 * MIB)
assert memory.size == 8 * MIB and memory.device_pointer % 512 == 0
assert vmmcache.memory_allocated() == 8 * MIB
free, total = manager.get_memory_info()
assert 0 < free <= total
""")

    def test_memory_is_freed_after_one_wait_for_the_device(self):
        self.succeeds(BEGIN + """
for number in range(64):
    manager.memalloc(MIB)
assert vmmcache.memory_allocated() == 64 * MIB and context.waits == 0
manager.memalloc(MIB)
assert vmmcache.memory_allocated() == MIB and context.waits == 1, context.waits
""")

    def test_much_memory_does_not_wait_long(self):
        self.succeeds(BEGIN + """
part = manager.get_memory_info().total // 16
manager.memalloc(part)
manager.memalloc(MIB)
assert context.waits == 1 and vmmcache.memory_allocated() == MIB
""")

    def test_a_request_that_would_fail_frees_first(self):
        self.succeeds(BEGIN + """
vmmcache.set_memory_limit('64MiB')
manager.memalloc(48 * MIB)
memory = manager.memalloc(48 * MIB)
assert context.waits == 1 and vmmcache.memory_allocated() == 48 * MIB
try:
    manager.memalloc(48 * MIB)
except MemoryError as error:
    assert 'limit' in str(error), error
else:
    raise SystemExit('no error')
""")

    def test_nothing_waits_while_cleanup_is_deferred(self):
        self.succeeds(BEGIN + """
with manager.defer_cleanup():
    for number in range(200):
        manager.memalloc(4096)
    assert context.waits == 0
manager.reset()
assert context.waits == 1 and vmmcache.memory_allocated() == 0
""")

    def test_handles_for_other_processes_are_refused(self):
        self.fails(BEGIN + "manager.get_ipc_handle(manager.memalloc(MIB))", "NotImplementedError", "other processes")


if __name__ == "__main__":
    unittest.main()
