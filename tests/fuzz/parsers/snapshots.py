"""Random input to what reads snapshots: pickles of any bytes, and snapshots with anything in any field.

usage: snapshots.py [--seed N] [--mutations N]

What is no snapshot is refused with one line; a snapshot that contradicts itself gets lines of faults. Nothing
else is raised, nothing is run, and no more memory is taken than the limit below.
"""
import argparse
import copy
import os
import pickle
import random
import resource
import struct
import sys
import tempfile

from vmmcache import _pickle_file, check_snapshot

MEMORY_BYTES = 1 << 30
BASE = 1 << 44
MIB = 1 << 20


def nested(depth):
    thing = []
    for _ in range(depth):
        thing = [thing]
    return thing


def looped():
    thing = {}
    thing["self"] = [thing]
    return thing


ODD = (None, True, 0, -1, 1 << 63, 1 << 200, -(1 << 200), 0.5, float("nan"), float("inf"), "", "alloc",
       "free_completed", "segment_map", "segment_unmap", "a\nb", "\ud800", b"\xff", (), (0, 0), (1, "x"), [],
       [[]], {}, {"address": BASE}, nested(100000), looped(), set(), BASE, BASE + 1, 2 * MIB, "x" * 100000)

# What a mutated pickle may hold that a random edit seldom makes: lengths and indices beyond reason, a
# class, a call.
PIECES = (b"r\xff\xff\xff\x7f", b"q\xff", b"\x8e" + struct.pack("<Q", 1 << 60), b"\x8d" + struct.pack("<Q", 1 << 62),
          b"X\xff\xff\xff\x7f", b"B\xff\xff\xff\xff", b"\x95" + struct.pack("<Q", 1 << 61), b"\x8b\xff\xff\xff\x7f",
          b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"(R.", b"i" * 3, b"(" * 1000, b"]" * 1000 + b"a" * 999,
          b"2" * 50 + b"t", b"}" + b"s" * 3, b"\x96" + struct.pack("<Q", 1 << 40), b"Pid\n", b"Q", b".")


def sound():
    blocks = [{"address": BASE, "size": 2 * MIB, "requested_size": MIB, "state": "active_allocated", "frames": []},
              {"address": BASE + 2 * MIB, "size": 2 * MIB, "requested_size": 0, "state": "inactive", "frames": []}]
    frame = {"filename": "train.py", "line": 7, "name": "step"}
    trace = [{"action": action, "addr": BASE, "size": size, "stream": 0, "time_us": 1, "compile_context": "N/A",
              "user_metadata": "", "pool_id": (0, 0), "frames": [frame]}
             for action, size in (("segment_map", 4 * MIB), ("alloc", MIB))]
    segment = {"device": 0, "address": BASE, "total_size": 4 * MIB, "allocated_size": 2 * MIB,
               "active_size": 2 * MIB, "requested_size": MIB, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": blocks}
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def places(thing, found):
    """Every (container, key) in a snapshot."""
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing)
    for key, value in list(pairs):
        found.append((thing, key))
        if isinstance(value, (dict, list)):
            places(value, found)
    return found


def fields_mutated(dice):
    picture = copy.deepcopy(sound())
    found = places(picture, [])
    for _ in range(dice.randint(1, 4)):
        container, key = dice.choice(found)
        if key not in container if isinstance(container, dict) else key >= len(container):
            continue
        action = dice.randrange(4)
        if action == 0:
            del container[key]
        elif action == 1 and isinstance(container, list):
            container.append(container[key])
        else:
            container[key] = dice.choice(ODD)
    return picture


def bytes_mutated(dice):
    data = bytearray(pickle.dumps(sound(), dice.randint(0, 5)))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data) + 1)
        action = dice.randrange(4)
        if action == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif action == 1:
            del data[at:at + dice.randint(1, 40)]
        elif action == 2:
            data[at:at] = dice.choice(PIECES)
        else:
            data[at:at + dice.randint(0, 8)] = dice.randbytes(dice.randint(0, 8))
    return bytes(data)


def is_one_line(text):
    return isinstance(text, str) and text.strip() != "" and "\n" not in text and "\r" not in text


def faults_checked(picture):
    for fault in check_snapshot(picture):
        assert is_one_line(fault), fault[:200]
        assert len(fault) < 1000, f"a line of {len(fault)} bytes"


def bytes_read(path, data):
    with open(path, "wb") as file:
        file.write(data)
    try:
        picture, faults = _pickle_file.read(path)
    except pickle.UnpicklingError as error:
        assert is_one_line(str(error)) and len(str(error)) < 1000, str(error)[:200]
        return
    for fault in faults:
        assert is_one_line(fault), fault
    faults_checked(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", type=int, default=4000)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        for number in range(arguments.mutations):
            dice = random.Random(arguments.seed * 1000003 + number)
            try:
                if number % 2 == 0:
                    bytes_read(path, bytes_mutated(dice))
                else:
                    faults_checked(fields_mutated(dice))
            except BaseException:
                print(f"failed: --seed {arguments.seed}, mutation {number}", file=sys.stderr)
                raise
    print(f"{arguments.mutations} mutations of seed {arguments.seed}")


if __name__ == "__main__":
    main()
