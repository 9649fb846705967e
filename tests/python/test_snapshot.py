"""Recorded history and snapshots: whole, in agreement with statistics, and readable by PyTorch's viewers."""
import ctypes
import os
import pickle
import random
import resource
import signal
import threading
import unittest
import unittest.mock

import vmmcache
from support import MIB, FolderTest, LibraryTest
from vmmcache import _library, _pickle_file

ROOM = 1000


def live(picture, device=0):
    return [block for segment in picture["segments"] if segment["device"] == device
            for block in segment["blocks"] if block["state"] == "active_allocated"]


def actions(picture, device=0):
    return [event["action"] for event in picture["device_traces"][device]]


class SnapshotTest(LibraryTest):
    def setUp(self):
        super().setUp()
        vmmcache.empty_cache()

    def sound(self, picture):
        self.assertEqual(vmmcache.check_snapshot(picture), [])
        return picture

    def test_without_history_it_shows_memory_only(self):
        address = self.alloc(3 * MIB)
        picture = self.sound(vmmcache.snapshot(0))
        self.assertEqual([(block["address"], block["requested_size"]) for block in live(picture)],
                         [(address, 3 * MIB)])
        self.assertEqual(picture["device_traces"], [[]])

    def test_it_agrees_with_the_statistics(self):
        for size in (100, 5000, 700 * 1024, 3 * MIB, 50 * MIB + 7):
            self.alloc(size)
        picture, stats = self.sound(vmmcache.snapshot(0)), vmmcache.memory_stats(0)
        for kind, pool in (("small", "small_pool"), ("large", "large_pool")):
            segments = [entry for entry in picture["segments"] if entry["segment_type"] == kind]
            for field, key in (("total_size", "reserved_bytes"), ("active_size", "active_bytes"),
                               ("requested_size", "requested_bytes"),
                               ("allocated_size", "allocated_bytes")):
                self.assertEqual(sum(entry[field] for entry in segments),
                                 stats[f"{key}.{pool}.current"], (kind, field))

    def test_history_has_every_allocation_and_free_with_its_stack(self):
        vmmcache.record_history(max_entries=ROOM)
        first = self.alloc(3 * MIB)
        second = self.alloc(5 * MIB)
        self.free(first)
        picture = self.sound(vmmcache.snapshot(0))
        found = [(event["action"], event["addr"], event["size"]) for event in
                 picture["device_traces"][0] if event["action"] in ("alloc", "free_requested")]
        self.assertEqual(found, [("alloc", first, 3 * MIB), ("alloc", second, 5 * MIB),
                                 ("free_requested", first, 3 * MIB)])
        self.assertIn("segment_map", actions(picture))
        self.assertIn("free_completed", actions(picture))
        for event in picture["device_traces"][0]:
            if event["action"] in ("alloc", "free_requested"):
                names = [frame["name"] for frame in event["frames"]]
                self.assertIn("test_history_has_every_allocation_and_free_with_its_stack", names)
        self.assertEqual(live(picture)[0]["frames"][0]["name"], "alloc")

    def test_memory_that_went_back_is_in_the_history(self):
        vmmcache.record_history(max_entries=ROOM)
        self.free(self.alloc(64 * MIB))
        vmmcache.empty_cache()
        self.assertIn("segment_unmap", actions(self.sound(vmmcache.snapshot(0))))

    def test_running_out_of_memory_is_in_the_history(self):
        vmmcache.record_history(max_entries=ROOM)
        vmmcache.set_memory_limit("32MiB", 0)
        self.addCleanup(vmmcache.set_memory_limit, None, 0)
        self.assertIsNone(_library.load().vmm_torch_try_alloc(64 * MIB, 0, None))
        picture = self.sound(vmmcache.snapshot(0))
        event = next(event for event in picture["device_traces"][0] if event["action"] == "oom")
        self.assertEqual(event["size"], 64 * MIB)
        self.assertIn("device_free", event)

    def test_modes(self):
        for mode, context, has_events, has_stacks in (("all", "all", True, True),
                                                      ("all", "alloc", True, True),
                                                      ("all", None, True, False),
                                                      ("state", "state", False, True)):
            with self.subTest(mode=mode, context=context):
                vmmcache.record_history(mode, context, max_entries=ROOM)
                self.free(self.alloc(MIB))
                self.alloc(2 * MIB)
                picture = self.sound(vmmcache.snapshot(0))
                self.assertEqual(bool(picture["device_traces"][0]), has_events)
                self.assertEqual(bool(live(picture)[-1]["frames"]), has_stacks)
                frees = [event for event in picture["device_traces"][0]
                         if event["action"] == "free_requested"]
                self.assertEqual(any(event["frames"] for event in frees), context == "all")

    def test_the_last_events_are_kept(self):
        vmmcache.record_history(max_entries=50)
        for _ in range(200):
            self.free(self.alloc(3 * MIB))
        picture = self.sound(vmmcache.snapshot(0))
        self.assertLessEqual(len(picture["device_traces"][0]), 50)
        self.assertIn("free_completed", actions(picture)[-3:])

    def test_actions_can_be_left_out(self):
        vmmcache.record_history(max_entries=ROOM, skip_actions=["free_completed", "snapshot"])
        self.free(self.alloc(3 * MIB))
        self.assertFalse({"free_completed", "snapshot"} & set(actions(vmmcache.snapshot(0))))

    def test_the_same_settings_go_on_and_others_begin_anew(self):
        vmmcache.record_history(max_entries=ROOM)
        self.alloc(3 * MIB)
        vmmcache.record_history(max_entries=ROOM)
        self.assertIn("alloc", actions(vmmcache.snapshot(0)))
        vmmcache.record_history(max_entries=ROOM, clear_history=True)
        self.assertNotIn("alloc", actions(vmmcache.snapshot(0)))
        vmmcache.record_history(None)
        self.assertEqual(live(vmmcache.snapshot(0))[0]["frames"], [])

    def test_more_entries_than_there_are_numbers_is_no_bound(self):
        for entries in ((1 << 63), (1 << 64), (1 << 64) + 1):
            vmmcache.record_history(max_entries=entries, clear_history=True)
            self.free(self.alloc(3 * MIB))
            self.assertIn("free_requested", actions(self.sound(vmmcache.snapshot(0))))

    def test_settings_that_change_while_a_snapshot_is_taken_leave_all_events_or_none(self):
        vmmcache.record_history(max_entries=ROOM)
        for _ in range(4):
            self.free(self.alloc(3 * MIB))
        word, calls = _library.load().vmm_torch_action_word, []

        def change(action):
            calls.append(action)
            if len(calls) == 2:
                vmmcache.record_history("state")
            return word(action)

        with unittest.mock.patch.object(_library.load(), "vmm_torch_action_word", change):
            picture = self.sound(vmmcache.snapshot(0))
        self.assertEqual(actions(picture).count("free_completed"), 4)

    def test_nonsense_is_refused(self):
        for arguments in ({"enabled": "some"}, {"context": "none"}, {"stacks": "rust"},
                          {"max_entries": 0}, {"max_entries": 1.5}, {"skip_actions": ["fly"]}):
            with self.assertRaises(ValueError, msg=arguments):
                vmmcache.record_history(**arguments)

    def test_every_device_has_its_place(self):
        vmmcache.record_history(max_entries=ROOM)
        self.alloc(3 * MIB, device=2)
        picture = self.sound(vmmcache.snapshot())
        self.assertEqual(len(picture["device_traces"]), 3)
        self.assertEqual(actions(picture, 2).count("alloc"), 1)
        self.assertEqual(len(live(picture, 2)), 1)
        self.assertEqual({segment["device"] for segment in vmmcache.snapshot(2)["segments"]}, {2})

    def test_random_operations_of_threads_give_sound_snapshots(self):
        vmmcache.record_history(max_entries=3000)

        def work(seed):
            draw, held = random.Random(seed), []
            for _ in range(400):
                if held and draw.random() < 0.45:
                    self.free(held.pop(draw.randrange(len(held))))
                else:
                    held.append(self.alloc(draw.choice((200, 9000, 300_000, 3 * MIB, 21 * MIB)),
                                           stream=16 * seed))
                if draw.random() < 0.01:
                    vmmcache.empty_cache()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.sound(vmmcache.snapshot(0))
        self.sound(vmmcache.snapshot(0))


class Filter(ctypes.Structure):
    """A std::function<bool(cudaStream_t)> of libstdc++ that every stream passes."""
    INVOKE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: True)
    MANAGE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(
        lambda *_: False)
    _fields_ = [("data", ctypes.c_uint64 * 2), ("manage", type(MANAGE)), ("invoke", type(INVOKE))]


class PrivatePoolTest(LibraryTest):
    def setUp(self):
        super().setUp()
        vmmcache.empty_cache()
        self.alloc(MIB)

    def pool(self, verb, number):
        """Calls a hook as PyTorch does: a pair comes in two registers, a function object by its address."""
        function = getattr(_library.load(), "vmm_torch_pool_" + verb)
        function.restype = None
        function.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(Filter)]
        function(0, 0, number, ctypes.byref(Filter(manage=Filter.MANAGE, invoke=Filter.INVOKE)))

    def test_memory_of_graphs_is_told_apart(self):
        vmmcache.record_history(max_entries=ROOM)
        self.pool("begin", 9)
        address = self.alloc(3 * MIB, stream=5)
        self.free(self.alloc(30 * MIB, stream=5))
        self.pool("end", 9)
        picture = vmmcache.snapshot(0)
        self.assertEqual(vmmcache.check_snapshot(picture), [])
        segment = next(entry for entry in picture["segments"] if entry["address"] <= address
                       < entry["address"] + entry["total_size"])
        self.assertEqual(segment["segment_pool_id"], (0, 9))
        pools = {event["pool_id"] for event in picture["device_traces"][0]
                 if event["action"] in ("alloc", "segment_map")}
        self.assertEqual(pools, {(0, 9)})
        self.assertIn("Kept for graphs: 3", vmmcache.memory_summary(0))
        self.pool("release", 9)
        self.free(address)
        vmmcache.empty_cache()
        self.assertEqual(vmmcache.check_snapshot(vmmcache.snapshot(0)), [])

    def test_random_operations_with_pools_and_other_streams_give_sound_snapshots(self):
        draw, held = random.Random(3), []
        vmmcache.record_history(max_entries=2000)
        for turn in range(1, 40):
            captures = draw.random() < 0.4
            if captures:
                self.pool("begin", turn)
            for _ in range(40):
                if held and draw.random() < 0.5:
                    self.free(held.pop(draw.randrange(len(held))))
                    continue
                held.append(self.alloc(draw.choice((200, 9000, 300_000, 3 * MIB, 21 * MIB)),
                                       stream=16 * draw.randrange(3)))
                if draw.random() < 0.3:
                    _library.load().vmm_torch_record_stream(held[-1], 16 * draw.randrange(3))
            if captures:
                self.pool("end", turn)
                self.pool("release", turn)
            self.assertEqual(vmmcache.check_snapshot(vmmcache.snapshot(0)), [])


class FileTest(LibraryTest, FolderTest):
    def test_a_file_has_opcodes_that_viewers_know_and_is_read_back(self):
        vmmcache.record_history(max_entries=ROOM)
        for size in (300, 40_000, 3 * MIB, 70 * MIB):
            self.alloc(size, stream=0x7F0012345678)
        path = self.path("snapshot.pickle")
        vmmcache.dump_snapshot(path)
        with open(path, "rb") as file:
            data = file.read()
        self.assertEqual(_pickle_file.opcode_faults(data), [])
        picture = pickle.loads(data)
        self.assertEqual(picture, _pickle_file.read(path)[0])
        self.assertEqual(vmmcache.check_snapshot(picture), [])
        self.assertIn(0x7F0012345678, {event["stream"] for event in picture["device_traces"][0]})

    def test_a_file_is_whole_or_as_it_was(self):
        """With a bound on the size of files, which fails in the middle of writing, as a full disk does."""
        self.alloc(3 * MIB)
        path = self.write("snapshot.pickle", "before")
        bounds = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, bounds[1]))
        try:
            with self.assertRaises(OSError):
                vmmcache.dump_snapshot(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, bounds)
            signal.signal(signal.SIGXFSZ, handler)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"before")
        self.assertEqual(os.listdir(self.folder), ["snapshot.pickle"])
        link = self.path("link")
        os.symlink(path, link)
        vmmcache.dump_snapshot(link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(vmmcache.check_snapshot(_pickle_file.read(path)[0]), [])
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "snapshot.pickle"])

    def test_where_nothing_can_be_written_it_raises(self):
        for path in ("/dev/full", "/nowhere/snapshot.pickle", os.path.dirname(__file__)):
            with self.assertRaises(OSError):
                vmmcache.dump_snapshot(path)
        self.assertFalse(os.path.isfile("/dev/full"))

    def test_files_that_ask_for_more_are_refused(self):
        with self.assertRaises(pickle.UnpicklingError):
            _pickle_file.read(self.write("evil.pickle", os.system))


if __name__ == "__main__":
    unittest.main()
