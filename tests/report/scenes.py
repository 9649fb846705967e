"""Recordings to show: a snapshot of a small training run under a first-fit allocator with chunks of 2 MiB, and a trace
with chunks and a view."""
import bisect
import random

KIB, MIB = 1 << 10, 1 << 20
CHUNK = 2 * MIB
BASE = 0x7F2000000000
LAYERS, STEPS = 12, 6
COPY_STREAM = 0x55D0
ACTIVE, WAITING, FREE = "active_allocated", "active_pending_free", "inactive"


class Device:
    """Memory that grows in chunks and never shrinks; every change is an event of the trace."""

    def __init__(self):
        self.end, self.time, self.events = BASE, 1_700_000_000_000_000, []
        self.blocks = []  # (address, size, stream, frames, state), sorted
        self.caller = []  # frames, innermost first

    def _note(self, action, address, size, stream, frames):
        self.time += 40 + size // 65536
        self.events.append({"action": action, "addr": address, "size": size, "stream": stream, "time_us": self.time,
                            "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": frames})

    def _gap(self, size):
        at = BASE
        for address, length, *_ in self.blocks:
            if address - at >= size:
                return at
            at = address + length
        return at

    def alloc(self, size, stream=0):
        room = -(-size // 512) * 512
        address = self._gap(room)
        while address + room > self.end:
            self._note("segment_map", self.end, CHUNK, 0, [])
            self.end += CHUNK
        frames = list(self.caller)
        bisect.insort(self.blocks, (address, room, stream, frames, ACTIVE))
        self._note("alloc", address, size, stream, frames)
        return address

    def free(self, address, waits=False):
        index = next(i for i, block in enumerate(self.blocks) if block[0] == address)
        _, size, stream, frames, _ = self.blocks[index]
        self._note("free_requested", address, size, stream, frames)
        if waits:
            self.blocks[index] = (address, size, stream, frames, WAITING)
            return
        self._note("free_completed", address, size, stream, frames)
        del self.blocks[index]

    def calls(self, name, line):
        return Call(self, {"name": name, "filename": "train.py", "line": line})

    def snapshot(self):
        tiles, at = [], BASE
        for address, size, _, frames, state in self.blocks + [(self.end, 0, 0, [], FREE)]:
            if at < address:
                tiles.append({"address": at, "size": address - at, "requested_size": 0, "state": FREE, "frames": []})
            if size:
                tiles.append({"address": address, "size": size, "requested_size": size, "state": state,
                              "frames": frames})
            at = address + size
        active = sum(size for _, size, *_ in self.blocks)
        live = sum(size for _, size, _, _, state in self.blocks if state == ACTIVE)
        segment = {"device": 0, "address": BASE, "total_size": self.end - BASE, "allocated_size": live,
                   "active_size": active, "requested_size": active, "stream": 0, "segment_type": "large",
                   "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": tiles}
        oom = {"action": "oom", "device_free": 96 * MIB, "size": 512 * MIB, "stream": 0, "time_us": self.time,
               "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": []}
        return {"segments": [segment], "device_traces": [self.events + [oom]], "allocator_settings": {},
                "external_annotations": []}


class Call:
    def __init__(self, device, frame):
        self.device, self.frame = device, frame

    def __enter__(self):
        self.device.caller.insert(0, self.frame)

    def __exit__(self, *_):
        self.device.caller.pop(0)


def _forward(device, tokens, statistics):
    kept = []
    with device.calls("forward", 41):
        for layer in range(LAYERS):
            with device.calls("attention", 17):
                scores = device.alloc(tokens * 6 * KIB)
                kept.append(device.alloc(tokens * 4 * KIB))
                device.free(scores)
            with device.calls("mlp", 26):
                kept.append(device.alloc(tokens * 10 * KIB))
            if layer % 3 == 0:
                with device.calls("log_norms", 33):
                    statistics.append(device.alloc(2 * KIB))
    return kept


def _backward(device, tokens, kept):
    with device.calls("backward", 58):
        for block in reversed(kept):
            gradient = device.alloc(tokens * 5 * KIB)
            device.free(block)
            device.free(gradient)


def _weights(device):
    blocks = []
    with device.calls("build_model", 9):
        for _ in range(LAYERS):
            blocks.append(device.alloc(12 * MIB))
            device.alloc(16 * KIB)
    return blocks


def training():
    """The snapshot, taken in the forward pass of the last step, after a request that failed."""
    device, draw, statistics = Device(), random.Random(7), []
    with device.calls("main", 80):
        _weights(device)
        with device.calls("make_optimizer", 71):
            for _ in range(LAYERS):
                device.alloc(24 * MIB)
        for _ in range(STEPS):
            tokens = draw.randrange(300, 2400)
            with device.calls("train_step", 64):
                with device.calls("load_batch", 49):
                    batch = device.alloc(tokens * 8 * KIB, COPY_STREAM)
                kept = _forward(device, tokens, statistics)
                _backward(device, tokens, kept)
                device.free(batch)
        with device.calls("evaluate", 77):
            with device.calls("load_batch", 49):
                device.free(device.alloc(9 * MIB, COPY_STREAM), waits=True)
            _forward(device, 700, statistics)
    return device.snapshot()


VIEW = BASE + (1 << 30)


def chunks():
    """Lines of a trace: chunks of 16, 8 and 8 MiB, and a block that has the end of the first and most of the second."""
    lines = ["#@ chunk %d" % CHUNK, "#@ frame 1 0 build_model (train.py:9)", "#@ frame 2 0 load_batch (train.py:49)",
             "#@ frame 3 0 forward (train.py:41)"]
    for number, at, size in ((1, 0, 16 * MIB), (2, 16 * MIB, 8 * MIB), (3, 24 * MIB, 8 * MIB)):
        lines += ["#@ home %d %d %d" % (number, BASE + at, size), "#@ map %d %d 0" % (BASE + at, size)]
    lines += ["#@ next address=%d frame=1" % BASE, "+ 1 %d 0" % (10 * MIB), "#@ name 1 weights",
              "#@ next address=%d frame=2" % (BASE + 24 * MIB), "+ 2 %d 0" % (8 * MIB), "#@ name 2 batch",
              "#@ place 1 %d" % VIEW, "#@ place 2 %d" % (VIEW + 16 * MIB),
              "#@ unmap %d %d" % (BASE + 10 * MIB, 6 * MIB), "#@ unmap %d %d" % (BASE + 16 * MIB, 6 * MIB),
              "#@ map %d %d 0" % (VIEW + 10 * MIB, 12 * MIB),
              "#@ next address=%d frame=3" % (VIEW + 10 * MIB), "+ 3 %d 0" % (12 * MIB), "#@ name 3 activations"]
    return lines
