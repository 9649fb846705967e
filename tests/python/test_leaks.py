"""Who holds memory: blocks that are live, by the place that asked for them."""
import unittest

import vmmcache
from support import MIB, LibraryTest


class LeaksTest(LibraryTest):
    def keep(self, size):
        return self.alloc(size)

    def keep_again(self, size):
        return self.alloc(size)

    def leak(self, size):
        return self.alloc(size)

    def test_sites_have_their_blocks_and_come_biggest_first(self):
        vmmcache.record_history("state")
        for _ in range(3):
            self.keep(3 * MIB)
        self.leak(40 * MIB)
        sites = vmmcache.live_blocks(0)
        self.assertEqual([(site.bytes, site.blocks) for site in sites], [(40 * MIB, 1), (9 * MIB, 3)])
        self.assertEqual(sites.total(), 49 * MIB)
        self.assertIn("leak", [name for _, _, name in sites[0].frames])
        report = str(sites)
        self.assertIn("49.00 MiB in 4 blocks", report)
        self.assertIn("40.00 MiB in 1 block", report)
        self.assertIn("leak (" + __file__, report)

    def test_leaks_are_what_was_added(self):
        vmmcache.record_history("state")
        held = [self.keep(3 * MIB)]
        before = vmmcache.live_blocks(0)
        self.assertEqual(vmmcache.leaks(before, 0), ())
        for _ in range(2):
            self.free(held.pop())
            held.append(self.keep_again(3 * MIB))
            self.leak(5 * MIB)
        sites = vmmcache.leaks(before, 0)
        grown = {name: (site.bytes, site.blocks) for site in sites for _, _, name in site.frames
                 if name in ("leak", "keep_again")}
        self.assertEqual(grown, {"leak": (10 * MIB, 2), "keep_again": (3 * MIB, 1)})

    def test_without_stacks_the_report_says_what_to_do(self):
        self.keep(3 * MIB)
        self.assertIn("record_history('state')", str(vmmcache.live_blocks(0)))

    def test_what_was_allocated_before_is_told_so(self):
        self.keep(3 * MIB)
        vmmcache.record_history("state")
        self.assertIn("before stacks were recorded", str(vmmcache.live_blocks(0)))

    def test_nothing_live_is_an_empty_report(self):
        self.assertEqual(str(vmmcache.live_blocks(0)), "0 B in 0 blocks")


if __name__ == "__main__":
    unittest.main()
