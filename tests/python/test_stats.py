"""memory_stats() and its like: every key that PyTorch has, and right figures after known operations."""
import unittest

import vmmcache
from support import GRANULE, MIB, LibraryTest
from vmmcache import _library

GROUPS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
          "active_bytes", "inactive_split_bytes", "requested_bytes")
POOLS = ("all", "large_pool", "small_pool")
COLUMNS = ("current", "peak", "allocated", "freed")
KEYS = sorted(
    [f"{group}.{pool}.{column}" for group in GROUPS for pool in POOLS for column in COLUMNS]
    + [f"{group}.{column}" for group in ("oversize_allocations", "oversize_segments")
       for column in COLUMNS]
    + ["num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams",
       "num_device_alloc", "num_device_free", "max_split_size"])


class KeysTest(LibraryTest):
    def test_keys_are_those_of_pytorch_and_sorted(self):
        self.assertEqual(list(vmmcache.memory_stats(0)), KEYS)

    def test_every_value_is_a_whole_number(self):
        self.alloc(3 * MIB)
        self.assertEqual({type(value) for value in vmmcache.memory_stats(0).values()}, {int})

    def test_a_device_that_was_never_used_has_zeros(self):
        stats = vmmcache.memory_stats(7)
        self.assertEqual(stats.pop("max_split_size"), -1)
        self.assertEqual(set(stats.values()), {0})

    def test_all_is_small_and_large_together(self):
        for size in (700, 900 * 1024, 5 * MIB, MIB, MIB + 1):
            self.alloc(size)
        stats = vmmcache.memory_stats(0)
        for group in GROUPS:
            for column in ("current", "allocated", "freed"):
                parts = [stats[f"{group}.{pool}.{column}"] for pool in ("small_pool", "large_pool")]
                self.assertEqual(stats[f"{group}.all.{column}"], sum(parts), (group, column))

    def test_nested_is_the_same(self):
        nested = vmmcache.memory_stats_as_nested_dict(0)
        self.assertEqual(nested["allocation"]["small_pool"]["freed"],
                         vmmcache.memory_stats(0)["allocation.small_pool.freed"])


class FiguresTest(LibraryTest):
    def setUp(self):
        super().setUp()
        vmmcache.empty_cache()
        vmmcache.reset_peak_memory_stats(0)
        vmmcache.reset_accumulated_memory_stats(0)

    def test_a_request_is_counted_as_asked_for_and_as_handed_out(self):
        self.alloc(3 * MIB + 1)
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["requested_bytes.large_pool.current"], 3 * MIB + 1)
        self.assertEqual(stats["allocated_bytes.large_pool.current"], 3 * MIB + 8192)
        self.assertEqual(stats["allocation.large_pool.current"], 1)
        self.assertEqual(stats["requested_bytes.small_pool.current"], 0)
        self.assertEqual(vmmcache.memory_allocated(0), 3 * MIB + 8192)

    def test_up_to_a_mebibyte_is_small(self):
        self.alloc(MIB)
        self.alloc(MIB + 1)
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["requested_bytes.small_pool.current"], MIB)
        self.assertEqual(stats["requested_bytes.large_pool.current"], MIB + 1)

    def test_peaks_stay_and_begin_anew(self):
        block = self.alloc(64 * MIB)
        self.free(block)
        self.assertEqual(vmmcache.memory_allocated(0), 0)
        self.assertEqual(vmmcache.max_memory_allocated(0), 64 * MIB)
        self.assertGreaterEqual(vmmcache.max_memory_reserved(0), 64 * MIB)
        vmmcache.reset_peak_memory_stats(0)
        self.assertEqual(vmmcache.max_memory_allocated(0), 0)

    def test_reserved_stays_until_empty_cache(self):
        self.free(self.alloc(64 * MIB))
        self.assertGreaterEqual(vmmcache.memory_reserved(0), 64 * MIB)
        vmmcache.empty_cache()
        self.assertEqual(vmmcache.memory_reserved(0), 0)

    def test_accumulated_figures_begin_anew_without_touching_peaks(self):
        self.free(self.alloc(8 * MIB))
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["allocated_bytes.all.allocated"], 8 * MIB)
        self.assertEqual(stats["allocated_bytes.all.freed"], 8 * MIB)
        self.assertGreater(stats["num_device_alloc"], 0)
        vmmcache.reset_accumulated_memory_stats(0)
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["allocated_bytes.all.allocated"], 0)
        self.assertEqual(stats["num_device_alloc"], 0)
        self.assertEqual(stats["segment.all.allocated"], 0)
        self.assertEqual(stats["allocated_bytes.all.peak"], 8 * MIB)

    def test_segments_are_chunks(self):
        self.alloc(100)
        self.alloc(64 * MIB)
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["segment.small_pool.current"], 1)
        self.assertGreaterEqual(stats["segment.large_pool.current"], 1)
        self.assertEqual(stats["reserved_bytes.small_pool.current"], GRANULE)

    def test_pinned_memory_is_inactive_split(self):
        blocks = [self.alloc(512 * 1024) for _ in range(4)]
        for block in blocks[1:]:
            self.free(block)
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["inactive_split_bytes.all.current"], GRANULE - 512 * 1024)
        self.assertEqual(stats["inactive_split_bytes.small_pool.current"], GRANULE - 512 * 1024)
        self.free(blocks[0])
        stats = vmmcache.memory_stats(0)
        self.assertEqual(stats["inactive_split_bytes.all.current"], 0)
        self.assertEqual(stats["inactive_split_bytes.all.peak"], GRANULE - 512 * 1024)

    def test_a_device_may_be_named_in_many_ways(self):
        self.alloc(4 * MIB)
        thing = type("Device", (), {"type": "cuda", "index": 0})()
        for device in (None, 0, "cuda", "cuda:0", thing):
            self.assertEqual(vmmcache.memory_allocated(device), 4 * MIB)
        for device in (1 << 32, "cuda:4294967296", "cuda:\u00b2", "cpu", "cuda:x",
                       type("Device", (), {"type": "cpu", "index": 0})()):
            with self.assertRaises(ValueError):
                vmmcache.memory_allocated(device)
        for device in (0.0, object()):
            with self.assertRaises(TypeError):
                vmmcache.memory_allocated(device)

    def test_a_device_may_be_a_number_of_any_kind(self):
        self.alloc(4 * MIB)
        third = type("Number", (), {"__index__": lambda _: 3})()
        self.assertEqual(vmmcache.memory_allocated(third), 0)

    def test_a_device_that_cannot_be_there_is_refused(self):
        for device in (-1, 64, 10**9, "cuda:64", type("Device", (), {"type": "cuda", "index": -1})()):
            for ask in (vmmcache.memory_allocated, vmmcache.memory_stats, vmmcache.memory_summary,
                        vmmcache.snapshot, vmmcache.live_blocks, vmmcache.mem_get_info,
                        vmmcache.reset_peak_memory_stats):
                with self.assertRaisesRegex(ValueError, "there is no device -?[0-9]+: devices are 0 to 63"):
                    ask(device)
            with self.assertRaises(ValueError):
                vmmcache.set_memory_limit(None, device)


class SummaryTest(LibraryTest):
    def test_it_has_all_rows_and_a_straight_edge(self):
        self.alloc(40 * MIB)
        full, short = vmmcache.memory_summary(0), vmmcache.memory_summary(0, abbreviated=True)
        for row in ("Allocated memory", "GPU reserved memory", "from small pool", "Largest hole",
                    "In limbo", "Compactions", "CUDA OOMs: ", "Stream waits", "Driver time", "40.00 MiB"):
            self.assertIn(row, full)
        self.assertNotIn("from small pool", short)
        for table in (full, short):
            self.assertEqual(len({len(line) for line in table.splitlines()}), 1)


class LimitTest(LibraryTest):
    def setUp(self):
        super().setUp()
        vmmcache.empty_cache()
        self.addCleanup(vmmcache.set_memory_limit, None, 0)

    def refused(self, size):
        library = _library.load()
        self.assertIsNone(library.vmm_torch_try_alloc(size, 0, None))
        return _library.last_error()

    def test_a_request_beyond_the_limit_fails_with_a_report(self):
        before = vmmcache.memory_stats(0)["num_ooms"]
        vmmcache.set_memory_limit("64MiB", 0)
        self.alloc(32 * MIB)
        report = self.refused(48 * MIB)
        self.assertIn("48", report)
        self.assertEqual(vmmcache.memory_stats(0)["num_ooms"], before + 1)
        self.alloc(16 * MIB)

    def test_a_limit_can_be_bytes_a_share_or_none(self):
        vmmcache.set_memory_limit(8 * MIB, 0)
        self.refused(16 * MIB)
        vmmcache.set_memory_limit(0.5, 0)
        self.alloc(16 * MIB)
        for share in ("0.001%", 1e-30):
            vmmcache.set_memory_limit(share, 0)
            self.refused(64 * MIB)
        vmmcache.set_memory_limit(None, 0)
        self.alloc(64 * MIB)

    def test_a_limit_that_makes_no_sense_is_refused(self):
        for limit in (-1, 1 << 64, "99999999999TiB", "9" * 400, "much", "120%", 1.5, 0.0):
            with self.assertRaises(ValueError):
                vmmcache.set_memory_limit(limit, 0)
        with self.assertRaises(TypeError):
            vmmcache.set_memory_limit([], 0)

    def test_a_device_that_was_not_used_is_opened(self):
        vmmcache.set_memory_limit("16MiB", 1)
        self.assertIsNone(_library.load().vmm_torch_try_alloc(32 * MIB, 1, None))
        self.alloc(8 * MIB, device=1)


if __name__ == "__main__":
    unittest.main()
