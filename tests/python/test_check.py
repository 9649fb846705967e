"""check_snapshot() finds nothing in a sound snapshot, and every fault that is put into it."""
import copy
import unittest

import vmmcache
from vmmcache import _pickle_file

MIB = 1 << 20
BASE = 1 << 44


def frame():
    return {"filename": "train.py", "line": 7, "name": "step"}


def block(address, size, state="inactive", requested=0):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}


def event(action, address, size, time, stream=0):
    place = "device_free" if action == "oom" else "addr"
    return {"action": action, place: address, "size": size, "stream": stream, "time_us": time,
            "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": [frame()]}


def segment(address, blocks, stream=0, device=0):
    active = [entry for entry in blocks if entry["state"] != "inactive"]
    return {"device": device, "address": address, "total_size": sum(entry["size"] for entry in blocks),
            "allocated_size": sum(entry["size"] for entry in active
                                  if entry["state"] == "active_allocated"),
            "active_size": sum(entry["size"] for entry in active),
            "requested_size": sum(entry["requested_size"] for entry in active),
            "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True,
            "frames": [], "blocks": blocks}


def sound():
    """A live block, one that waits, free memory; and the events that made them."""
    blocks = [block(BASE, 2 * MIB, "active_allocated", 2 * MIB - 100),
              block(BASE + 2 * MIB, 4 * MIB, "active_pending_free", 4 * MIB), block(BASE + 6 * MIB, 2 * MIB)]
    trace = [event("segment_map", BASE, 4 * MIB, 1), event("alloc", BASE, 3 * MIB, 1),
             event("free_requested", BASE, 3 * MIB, 2), event("free_completed", BASE, 3 * MIB, 2),
             event("segment_map", BASE + 4 * MIB, 4 * MIB, 3),
             event("segment_map", BASE + 32 * MIB, 2 * MIB, 3, stream=5),
             event("alloc", BASE, 2 * MIB - 100, 4), event("alloc", BASE + 2 * MIB, 4 * MIB, 5),
             event("free_requested", BASE + 2 * MIB, 4 * MIB, 6),
             event("segment_unmap", BASE + 32 * MIB, 2 * MIB, 7, stream=5),
             event("oom", 512, 1 << 40, 8), event("snapshot", 0, 0, 9)]
    return {"segments": [segment(BASE, blocks)], "device_traces": [trace], "allocator_settings": {},
            "external_annotations": []}


def first_segment(picture):
    return picture["segments"][0]


def trace_of(picture):
    return picture["device_traces"][0]


BROKEN = {
    "no segments": lambda picture: picture.pop("segments"),
    "a field is missing": lambda picture: first_segment(picture).pop("stream"),
    "a field has another type": lambda picture: first_segment(picture).update(is_expandable=1),
    "a pool is no pair": lambda picture: first_segment(picture).update(segment_pool_id=(0,)),
    "a kind is unknown": lambda picture: first_segment(picture).update(segment_type="medium"),
    "a frame has no line": lambda picture: trace_of(picture)[0]["frames"][0].pop("line"),
    "blocks leave a gap": lambda picture: first_segment(picture)["blocks"].pop(1),
    "blocks end early": lambda picture: first_segment(picture)["blocks"].pop(2),
    "a sum is wrong": lambda picture: first_segment(picture).update(allocated_size=1),
    "another sum is wrong": lambda picture: first_segment(picture).update(requested_size=1),
    "a state is unknown": lambda picture: first_segment(picture)["blocks"][2].update(state="active"),
    "more was asked for": lambda picture: first_segment(picture)["blocks"][2].update(
        requested_size=3 * MIB),
    "segments overlap": lambda picture: picture["segments"].append(
        segment(BASE + 7 * MIB, [block(BASE + 7 * MIB, 2 * MIB)])),
    "an oom has an address": lambda picture: trace_of(picture)[10].pop("device_free"),
    "an action is unknown": lambda picture: trace_of(picture)[10].update(action="stumble", addr=0),
    "time goes back": lambda picture: trace_of(picture)[3].update(time_us=100),
    "a block was never allocated": lambda picture: trace_of(picture)[6].update(addr=BASE + 512),
    "an allocation had another size": lambda picture: trace_of(picture)[6].update(size=7),
    "it was freed twice": lambda picture: trace_of(picture).insert(9, event(
        "free_requested", BASE + 2 * MIB, 4 * MIB, 6)),
    "it came free twice": lambda picture: trace_of(picture).insert(4, event(
        "free_completed", BASE, 3 * MIB, 2)),
    "it came free and is live": lambda picture: trace_of(picture).append(
        event("free_completed", BASE + 512, MIB, 9)),
    "memory was mapped twice": lambda picture: trace_of(picture).insert(5, event(
        "segment_map", BASE + 4 * MIB, 4 * MIB, 3)),
    "memory went that is there": lambda picture: trace_of(picture).append(event(
        "segment_unmap", BASE + 4 * MIB, 4 * MIB, 9)),
    "memory of another stream": lambda picture: trace_of(picture)[4].update(stream=3),
    "memory came under a live block": lambda picture: trace_of(picture).insert(7, event(
        "segment_map", BASE, 2 * MIB, 4)),
    "a block without memory": lambda picture: trace_of(picture).insert(10, event(
        "free_completed", BASE + 33 * MIB, MIB, 7)),
}


class CheckTest(unittest.TestCase):
    def test_a_sound_snapshot_has_no_faults(self):
        self.assertEqual(vmmcache.check_snapshot(sound()), [])

    def test_an_empty_snapshot_has_no_faults(self):
        empty = {"segments": [], "device_traces": [[]], "allocator_settings": {},
                 "external_annotations": []}
        self.assertEqual(vmmcache.check_snapshot(empty), [])

    def test_every_fault_is_found(self):
        for name, breaks in BROKEN.items():
            with self.subTest(name):
                picture = copy.deepcopy(sound())
                breaks(picture)
                self.assertNotEqual(vmmcache.check_snapshot(picture), [])

    def test_the_beginning_of_a_history_may_be_lost(self):
        for lost in range(len(trace_of(sound()))):
            picture = sound()
            del trace_of(picture)[:lost]
            self.assertEqual(vmmcache.check_snapshot(picture), [])

    def test_what_is_no_snapshot_at_all_is_a_fault(self):
        for thing in (None, [], {}, {"segments": 1}, {**sound(), "device_traces": [5]}):
            self.assertNotEqual(vmmcache.check_snapshot(thing), [])

    def test_a_fault_is_a_line_whatever_the_snapshot_holds(self):
        nested = []
        for _ in range(100000):
            nested = [nested]
        for odd in (nested, "x\n" * 100000, 1 << 20000, "\ud800"):
            for breaks in (lambda picture: first_segment(picture).update(stream=odd),
                           lambda picture: first_segment(picture).update(segment_type=odd),
                           lambda picture: trace_of(picture)[10].update(action=odd, addr=0)):
                picture = sound()
                breaks(picture)
                faults = vmmcache.check_snapshot(picture)
                self.assertNotEqual(faults, [])
                for fault in faults:
                    self.assertNotIn("\n", fault)
                    self.assertLess(len(fault.encode("utf-8")), 500)

    def test_devices_do_not_mix(self):
        picture = sound()
        picture["segments"].append(segment(BASE, [block(BASE, 8 * MIB)], device=1))
        self.assertEqual(vmmcache.check_snapshot(picture), [])


class OpcodesTest(unittest.TestCase):
    def test_opcodes_that_the_viewer_does_not_know_are_found(self):
        import datetime
        import pickle
        for thing, protocol in ((datetime.date(2020, 1, 1), 4), (b"bytes", 4), ([1], 5), (1 << 70, 4),
                                ({1, 2}, 4)):
            self.assertNotEqual(_pickle_file.opcode_faults(pickle.dumps(thing, protocol)), [])
        self.assertEqual(_pickle_file.opcode_faults(pickle.dumps(sound(), 4)), [])

    def test_files_that_claim_more_than_they_have_are_refused(self):
        """Indices and lengths for which the machine that unpickles would take gigabytes."""
        import pickle
        for data in (b"\x80\x04}r\xff\xff\xff\x7f.", b"\x80\x05\x96" + b"\0" * 5 + b"\1\0\0.",
                     b"\x80\x04\x8d" + b"\xff" * 8 + b".", b"\x80\x04X\xff\xff\xff\x7f."):
            with self.assertRaises((ValueError, pickle.UnpicklingError)):
                _pickle_file.opcode_faults(data)


if __name__ == "__main__":
    unittest.main()
