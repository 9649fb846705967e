"""Cache and Block."""
import contextlib
import ctypes
import gc
import os
import tempfile
import threading
import time
import unittest

import vmmcache
from support import MIB, has_cuda, run_python
from vmmcache import _dlpack, _library, report

ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p

IS_HOST = os.environ.get("VMM_DRIVER") == "host"


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.cache = vmmcache.Cache(limit="64MiB", decay_ms=1000)
        self.addCleanup(self.cache.close)

    def live(self):
        return self.cache.stats()["requested_bytes"]["current"]

    def test_blocks_are_freed_once(self):
        block = self.cache.alloc(5 * MIB)
        self.assertEqual((len(block), block.nbytes, block.address % 512), (5 * MIB, 5 * MIB, 0))
        self.assertEqual(self.live(), 5 * MIB)
        block.free()
        block.free()
        self.assertEqual(self.live(), 0)
        with self.assertRaisesRegex(vmmcache.VmmError, "is freed"):
            block.record_stream(7)

    def test_the_last_reference_frees(self):
        block = self.cache.alloc(MIB)
        del block
        self.assertEqual(self.live(), 0)
        with self.cache.alloc(MIB):
            self.assertEqual(self.live(), MIB)
        self.assertEqual(self.live(), 0)

    def test_a_limit_is_a_memory_error_with_the_report(self):
        with self.assertRaisesRegex(MemoryError, "limit"):
            self.cache.alloc(65 * MIB)
        self.cache.set_limit(None)
        self.cache.alloc(65 * MIB)
        self.cache.set_limit(0.5)
        free, total = self.cache.memory_info()
        self.assertTrue(0 < free <= total)
        self.assertEqual(self.cache.stats()["limit_bytes"], int(total * 0.5))

    def test_a_trim_releases(self):
        self.cache.alloc(8 * MIB).free()
        self.cache.wait()
        self.assertGreaterEqual(self.cache.trim(), 8 * MIB)
        self.assertEqual(self.cache.stats()["reserved_bytes"]["current"], 0)

    def test_a_trace_has_its_blocks_and_notes(self):
        before = self.cache.alloc(MIB)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.trace")
            with self.cache.trace(path, stacks=True):
                self.cache.alloc(3 * MIB).free()
                self.cache.trace_note("step 1")
            self.cache.alloc(5 * MIB).free()
            self.cache.trace_note("not recorded")
            found = report.read(path)
            with self.assertRaisesRegex(vmmcache.VmmError, "No such file"):
                with self.cache.trace(os.path.join(folder, "missing", "run.trace")):
                    self.fail("the statement ran")
        self.assertEqual([(size, life > 0) for size, life in zip(found.bytes, found.life)],
                         [(MIB, False), (3 * MIB, True)])
        self.assertEqual(found.address[0], before.address)
        self.assertGreater(found.frame[1], 0)
        self.assertIn("step 1", [text for _, text in found.notes])
        self.assertNotIn("not recorded", [text for _, text in found.notes])

    def test_a_cache_that_is_closed_in_its_trace_is_recorded(self):
        with tempfile.TemporaryDirectory() as folder, vmmcache.Cache() as cache:
            path = os.path.join(folder, "run.trace")
            with cache.trace(path):
                block = cache.alloc(MIB)
                cache.close()
            self.assertEqual(list(report.read(path).bytes), [MIB])
            del block
            with self.assertRaisesRegex(vmmcache.VmmError, "closed"):
                cache.trace_note("late")

    def test_streams_are_numbers_or_objects(self):
        class Stream:
            def __init__(self, name, number):
                setattr(self, name, number)
        for stream in (48, Stream("ptr", 48), Stream("cuda_stream", 48), Stream("handle", ctypes.c_void_p(48))):
            self.assertEqual(self.cache.alloc(100, stream).stream, 48)
        self.assertEqual(self.cache.alloc(100, Stream("handle", ctypes.c_void_p())).stream, 0)
        block = self.cache.alloc(100, 48)
        block.record_stream(64)
        block.free()
        self.cache.stream_end(48)

    def test_a_closed_cache_refuses(self):
        block = self.cache.alloc(100)
        self.cache.close()
        self.cache.close()
        block.free()
        for call in (lambda: self.cache.alloc(1), self.cache.stats, self.cache.trim):
            with self.assertRaisesRegex(vmmcache.VmmError, "closed"):
                call()

    def test_wrong_arguments_are_named(self):
        for settings, text in (({"driver": "gpu"}, "gpu"), ({"footprint": 2000}, "footprint"),
                               ({"limit": "much"}, "much")):
            with self.assertRaisesRegex(ValueError, text):
                vmmcache.Cache(**settings)
        if not IS_HOST:
            return
        with self.assertRaisesRegex(vmmcache.VmmError, "VMM_ERR_NO_DEVICE" if has_cuda() else "VMM_ERR_UNSUPPORTED"):
            vmmcache.Cache(device=99, driver="cuda", limit="1GiB")

    def test_numbers_that_the_interface_cannot_express_are_refused(self):
        """ctypes would cut them: a block of 2^64 + 5 bytes would have 5."""
        class Number:
            def __index__(self):
                return 4096
        self.assertEqual(self.cache.alloc(Number()).nbytes, 4096)
        for call, kind in ((lambda: self.cache.alloc((1 << 64) + 5), ValueError),
                           (lambda: self.cache.alloc(-1), ValueError),
                           (lambda: self.cache.alloc(1.5), TypeError), (lambda: self.cache.alloc("1MiB"), TypeError),
                           (lambda: self.cache.alloc(1, -1), ValueError), (lambda: self.cache.alloc(1, "x"), TypeError),
                           (lambda: self.cache.trim(-1), ValueError),
                           (lambda: vmmcache.Cache(device=1 << 32), ValueError),
                           (lambda: vmmcache.Cache(device="cuda:0"), TypeError),
                           (lambda: vmmcache.Cache(zero="on"), TypeError)):
            with self.assertRaisesRegex(kind, "nbytes|stream|keep|device|zero"):
                call()

    def test_a_close_beside_other_threads_is_safe(self):
        def work(cache):
            with contextlib.suppress(vmmcache.VmmError):
                while True:
                    for block in [cache.alloc(4096) for _ in range(9)]:
                        block.free()
        for _ in range(20):
            cache = vmmcache.Cache(limit="64MiB")
            threads = [threading.Thread(target=work, args=(cache,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.002)
            cache.close()
            for thread in threads:
                thread.join()

    def test_garbage_in_a_cycle_ends_in_any_order(self):
        self.assertEqual(run_python("""
import gc, vmmcache
class Holder:
    pass
for _ in range(10):
    holder = Holder()
    holder.itself, holder.cache = holder, vmmcache.Cache()
    holder.block = holder.cache.alloc(100)
    del holder
    gc.collect()
"""), (0, ""))

    def test_a_child_that_forked_ends_quietly(self):
        self.assertEqual(run_python("""
import os, vmmcache
cache = vmmcache.Cache()
block = cache.alloc(100)
child = os.fork()
if child == 0:
    del block
else:
    assert os.waitpid(child, 0)[1] == 0
    assert cache.stats()['requested_bytes']['current'] == 100
"""), (0, ""))

    def test_zero_is_a_setting(self):
        with vmmcache.Cache(zero=True) as cache:
            block = cache.alloc(1000)
            if IS_HOST:
                self.assertEqual(ctypes.string_at(block.address, 1000), bytes(1000))

    def test_only_a_gpu_has_the_interface_of_cuda_arrays(self):
        block = self.cache.alloc(100)
        self.assertFalse(hasattr(block, "__cuda_array_interface__"))
        self.cache._driver = 1
        wanted = {"shape": (100,), "typestr": "|u1", "data": (block.address, False), "version": 3, "strides": None,
                  "stream": 1}
        self.assertEqual(block.__cuda_array_interface__, wanted)
        self.assertEqual(block.__dlpack_device__(), (2, 0))


@unittest.skipUnless(IS_HOST, "sim has no memory to share")
class DlpackTest(unittest.TestCase):
    def setUp(self):
        self.cache = vmmcache.Cache()
        self.addCleanup(self.cache.close)

    def live(self):
        gc.collect()
        return self.cache.stats()["requested_bytes"]["current"]

    def managed(self, capsule):
        pointer = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor")
        return pointer, _dlpack.Managed.from_address(pointer)

    def test_a_capsule_describes_the_bytes(self):
        block = self.cache.alloc(1000)
        capsule = block.__dlpack__()
        _, managed = self.managed(capsule)
        tensor = managed.tensor
        self.assertEqual((tensor.data, tensor.ndim, tensor.shape[0], tensor.code, tensor.bits, tensor.lanes),
                         (block.address, 1, 1000, 1, 8, 1))
        self.assertEqual((tensor.device_type, tensor.device_id, bool(tensor.strides)), (1, 0, False))

    def test_an_unused_capsule_gives_the_block_back(self):
        capsule = self.cache.alloc(1000).__dlpack__()
        self.assertEqual(self.live(), 1000)
        del capsule
        self.assertEqual(self.live(), 0)

    def test_a_consumer_keeps_the_block_until_it_deletes(self):
        capsule = self.cache.alloc(1000).__dlpack__(stream=-1)
        pointer, managed = self.managed(capsule)
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor")
        del capsule
        self.assertEqual(self.live(), 1000)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(pointer)
        self.assertEqual(self.live(), 0)

    def test_a_consumer_may_outlive_a_free_and_the_cache(self):
        capsule = self.cache.alloc(1000).__dlpack__()
        pointer, managed = self.managed(capsule)
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor")
        with self.cache.alloc(1000) as block:
            other = block.__dlpack__()
        self.assertIsNone(block.address)
        self.assertEqual(self.live(), 2000)
        del other
        self.assertEqual(self.live(), 1000)
        self.cache.close()
        ctypes.memset(managed.tensor.data, 7, 1000)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(pointer)
        self.assertEqual(_dlpack._shared, {})

    def test_an_exception_on_its_way_stays(self):
        """A capsule may end while one is."""
        with self.assertRaises(ZeroDivisionError):
            _ = [self.cache.alloc(1000).__dlpack__(), 1 / 0]
        self.assertEqual(self.live(), 0)

    def test_another_stream_is_recorded(self):
        block = self.cache.alloc(1000, stream=16)
        block.__dlpack__(stream=32)
        self.assertEqual(self.cache.stats()["streams"], 2)

    def test_what_cannot_be_shared_is_refused(self):
        block = self.cache.alloc(1000)
        for arguments in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 2}):
            with self.assertRaises(BufferError):
                block.__dlpack__(**arguments)
        block.free()
        with self.assertRaises(vmmcache.VmmError):
            block.__dlpack__()

    def test_an_exit_with_a_consumer_is_quiet(self):
        status, said = run_python("""
import ctypes, vmmcache
capsule = vmmcache.Cache().alloc(1000).__dlpack__()
ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b'used_dltensor')
""")
        self.assertEqual((status, said), (0, ""))


class LibraryTest(unittest.TestCase):
    def test_the_driver_is_that_of_the_environment(self):
        config = type("Config", (), {"driver": 0})
        self.assertEqual(_library.driver_of(config), 2 if IS_HOST else 3)


if __name__ == "__main__":
    unittest.main()
