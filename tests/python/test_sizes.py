"""Sizes and settings as people write them."""
import unittest

import vmmcache
from support import ProgramTest
from vmmcache import _sizes

MIB = 1 << 20


class SizesTest(unittest.TestCase):
    def test_sizes_and_shares_are_told_apart(self):
        for written, expected in ((None, (0, None)), (0, (0, None)), (5, (5, None)),
                                  ("8GiB", (8 << 30, None)), ("1.5 MiB", (3 * MIB // 2, None)),
                                  ("64M", (64 * MIB, None)), ("512", (512, None)),
                                  ("80%", (None, 0.8)), (0.25, (None, 0.25)), (1.0, (None, 1.0))):
            self.assertEqual(_sizes.parse(written), expected, written)

    def test_nonsense_is_refused(self):
        for written in (-1, "", "GiB", "8 gigs", "101%", 0.0, 1.1, "-3MiB"):
            with self.assertRaises(ValueError, msg=written):
                _sizes.parse(written)
        for written in (True, [], b"8GiB"):
            with self.assertRaises(TypeError, msg=written):
                _sizes.parse(written)

    def test_text_has_a_unit(self):
        self.assertEqual([_sizes.text(size) for size in (0, 1023, 1536 * 1024, 3 << 40, 9 << 50)],
                         ["0 B", "1023 B", "1.50 MiB", "3.00 TiB", "9216.00 TiB"])


class SettingsTest(ProgramTest):
    def test_settings_that_make_no_sense_are_refused(self):
        from vmmcache._config import configure
        for settings in ({"footprint": 5000}, {"footprint": -1}, {"reuse": "never"},
                         {"compaction": "maybe"}, {"decay_ms": -5}, {"peers": [64]},
                         {"decay_keep": "50%"}, {"decay_keep": 1 << 64}, {"limit": "lots"}, {"limit": 1 << 64},
                         {"reuse": []}):
            with self.assertRaises(ValueError, msg=settings):
                configure(**settings)
        for settings, hint in (({"footprint": "tight"}, "'any'"), ({"footprint": 0.01}, "thousandths"),
                               ({"peers": 1}, "a list of device ordinals"),
                               ({"pressure": 3}, "must be a function"), ({"no_caching": "False"}, "True or False"),
                               ({"no_caching": []}, "True or False"), ({"ipc": "yes"}, "True or False")):
            with self.assertRaisesRegex(TypeError, hint, msg=settings):
                configure(**settings)

    def test_settings_reach_the_cache(self):
        code = """if True:
            from support import alloc, MIB
            from vmmcache import _figures, _library
            from vmmcache._config import configure
            configure(limit='24MiB', footprint='any', reuse='stream_wait', compaction='on', decay_ms=5,
                      decay_keep='1MiB', peers=[0, 1], pressure=lambda size: print('asked for', size))
            alloc(16 * MIB)
            assert _figures.Figures(0).number('limit_bytes') == 24 * MIB
            assert _library.load().vmm_torch_try_alloc(64 * MIB, 0, None) is None
            try:
                configure()
            except RuntimeError as error:
                print(error)
            """
        said = self.succeeds(code, fake=False)
        self.assertIn("asked for ", said)
        self.assertIn("call it earlier", said)

    def test_pressure_may_free_blocks_while_history_is_recorded(self):
        code = """if True:
            import vmmcache
            from support import alloc, free, MIB
            from vmmcache._config import configure
            held = []
            def give(size):
                if held:
                    free(held.pop(), 16 * MIB)
                    return True
            configure(limit='32MiB', pressure=give)
            vmmcache.record_history()
            held += [alloc(16 * MIB), alloc(16 * MIB)]
            alloc(24 * MIB)
            assert not held
            assert vmmcache.check_snapshot(vmmcache.snapshot()) == []
            """
        self.succeeds(code, fake=False)

    def test_a_share_is_one_of_the_device(self):
        code = """if True:
            from support import alloc, MIB
            import vmmcache
            from vmmcache import _figures
            from vmmcache._config import configure
            configure(limit='50%')
            alloc(MIB)
            assert _figures.Figures(0).number('limit_bytes') == vmmcache.mem_get_info(0)[1] // 2
            """
        self.succeeds(code, fake=False)

    def test_a_share_stays_out_of_the_environment_and_settings_without_one_bring_it_back(self):
        code = """if True:
            import os
            import vmmcache
            from vmmcache import _figures
            from vmmcache._config import configure
            os.environ.pop('VMM_LIMIT', None)
            for before in (None, '3GiB'):
                if before:
                    os.environ['VMM_LIMIT'] = before
                for share in (0.25, 1e-7):
                    configure(limit=share)
                    assert 'VMM_LIMIT' not in os.environ
                configure()
                assert os.environ.get('VMM_LIMIT') == before
            configure(limit=1e-7)
            total = vmmcache.mem_get_info(0)[1]
            assert _figures.Figures(0).number('limit_bytes') == int(1e-7 * total)
            try:
                configure()
            except RuntimeError:
                assert 'VMM_LIMIT' not in os.environ
            """
        self.succeeds(code, fake=False)

    def test_the_version_is_told(self):
        self.assertRegex(vmmcache.version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
