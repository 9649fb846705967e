"""Shows a process that runs: from the trace that it records now, or else from samples of what it publishes.

A trace is found through the files that the process has open, so it needs neither a name nor a message to the process,
and it can be read at any moment (src/trace/lines.h). Samples are what vmmtop reads: totals of streams, without blocks.

Called by: report.
"""
from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import zlib

from . import report_trace
from .report_recording import Recording, ReportError

PERIOD_SECONDS = 0.5  # in which a process publishes
_WRITE_ONLY = 1  # of the flags of an open file
_ABSENT = 1  # exit status of vmmtop: the process does not publish
_PAUSE_SECONDS = 0.1
_TRIES = 3  # a trace that has just begun has no operations
_MOST_SECONDS = 86400


def read(pid: int, seconds: float = 10, vmmtop=None, device=None) -> Recording:
    """What there is of a process. Raises ReportError if it neither records nor publishes."""
    if not os.path.isdir(f"/proc/{pid}"):
        raise ReportError(f"no process has the pid {pid}")
    traces = _traces(pid)
    if traces:
        return _read_trace(pid, traces)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ReportError(f"--seconds is {seconds:g}; more than 0, up to {_MOST_SECONDS}, can be")
    return _Sampler(pid, vmmtop, device).run(seconds)


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f"{file.read().strip()} (pid {pid})"
    except OSError:
        return f"pid {pid}"


# ---- The trace that it records ---------------------------------------------------------------------------------------

def _traces(pid: int) -> list:
    """(bytes, path that opens it, its name) of each trace that the process writes, the largest first."""
    found = []
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except PermissionError as error:
        raise ReportError(f"the process {pid} may not be looked at: it belongs to another user") from error
    for descriptor in descriptors:
        path = os.path.join(folder, descriptor)
        try:
            if _is_trace(pid, descriptor, path):
                found.append((os.stat(path).st_size, path, os.readlink(path)))
        except OSError:
            continue  # closed meanwhile, or not readable
    return sorted(found, reverse=True)


def _is_trace(pid: int, descriptor: str, path: str) -> bool:
    if not stat.S_ISREG(os.stat(path).st_mode):
        return False
    with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    if int(fields["flags"], 8) & os.O_ACCMODE != _WRITE_ONLY:
        return False
    with open(path, "rb") as file:
        try:
            return report_trace.unpacked(file).read(len(report_trace.HEAD)) == report_trace.HEAD
        except (EOFError, zlib.error):
            return False  # no member is whole yet, or it is another file


def _read_trace(pid: int, traces: list) -> Recording:
    """The largest one. While it has no operations, another one may become the largest."""
    for tries_left in range(_TRIES - 1, -1, -1):
        _, path, name = traces[0]
        try:
            with open(path, "rb") as file:
                recording = report_trace.read(report_trace.unpacked(file), name, _name(pid))
            break
        except (ReportError, OSError):
            if not tries_left:
                raise
        time.sleep(PERIOD_SECONDS)
        traces = _traces(pid) or traces
    if len(traces) > 1:
        others = ", ".join(trace[2] for trace in traces[1:])
        print(f"vmmcache-report: the process {pid} records several caches; this is {name}, and others are: {others}",
              file=sys.stderr)
    return recording


# ---- Samples of what it publishes ------------------------------------------------------------------------------------

class _Sampler:
    """Each sample is a state. What a stream has live in a pool is a block, as long as it has that size."""

    def __init__(self, pid: int, vmmtop, device):
        self.pid, self.device = pid, device
        self.command = [_find_vmmtop(vmmtop), str(pid), "--json", *_folder(pid)]
        self.recording = Recording(_name(pid), "samples")
        self.serial = None  # of the cache that is shown
        self.sequence = None  # of the last sample
        self.blocks = {}  # (stream, pool): (its bytes, its block)
        self.reserved_bytes = 0

    def run(self, seconds: float) -> Recording:
        end = time.monotonic() + seconds
        while self._take() and time.monotonic() < end:
            time.sleep(max(min(PERIOD_SECONDS, end - time.monotonic()), 0))
        if self.serial is None:
            raise ReportError(f"the process {self.pid} neither records nor publishes: start it with VMM_TRACE=FILE, or "
                              "with VMM_MONITOR=1 for samples of its statistics")
        self.recording.finish()
        return self.recording

    def _take(self) -> bool:
        """Adds a sample, if there is a new one. False: the last one was taken."""
        process = self._ask()
        if process is None:
            self._is_over("the process has ended, or publishes nothing now")
            return False
        cache = self._cache(process["caches"])
        if cache is None:
            self._is_over("the cache was destroyed")
            return False
        if process["sequence"] != self.sequence:
            self.sequence = process["sequence"]
            self._add(cache)
        return True

    def _ask(self):
        """What vmmtop says of the process; None: it does not publish. A busy machine may hide it for a moment."""
        for tries_left in range(_TRIES - 1, -1, -1):
            done = subprocess.run(self.command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return self._process(done.stdout)
            if done.returncode != _ABSENT:
                raise ReportError(f"{self.command[0]} failed: {done.stderr.strip()}")
            if tries_left:
                time.sleep(_PAUSE_SECONDS)
        return None

    def _process(self, said: str) -> dict:
        try:
            found = json.loads(said)["processes"][0]
            return {name: found[name] for name in ("caches", "sequence")}
        except (ValueError, LookupError, TypeError) as error:
            raise ReportError(f"{self.command[0]} is not vmmtop: it printed no JSON of a process") from error

    def _cache(self, caches: list):
        """The cache of the device that has the most memory at first; later the same again."""
        if self.serial is None:
            fits = [cache for cache in caches if self.device in (None, cache["device"])]
            if caches and not fits:
                raise ReportError(f"the process {self.pid} has no cache on device {self.device}")
            if fits:
                self.serial = max(fits, key=lambda cache: cache["reserved_bytes"])["serial"]
        return next((cache for cache in caches if cache["serial"] == self.serial), None)

    def _is_over(self, why: str) -> None:
        if self.serial is not None:
            self.recording.notes.append((self.recording.operations, why))

    def _add(self, cache: dict) -> None:
        recording = self.recording
        if recording.times:
            recording.operations += 1
        else:
            recording.device = cache["device"]
        recording.times.append(time.monotonic_ns() // 1000)
        live = {(_stream_name(lane["stream"]), lane["pool"]): (lane["allocated_bytes"], lane["blocks"])
                for lane in cache["by_stream"]}
        rest = cache["allocated_bytes"] - sum(size for size, _ in live.values())
        if rest > 0:
            live["other streams", ""] = rest, 0
        for key in self.blocks.keys() | live.keys():
            self._set_live(key, *live.get(key, (0, 0)))
        self._set_reserved(cache["reserved_bytes"])

    def _set_live(self, key: tuple, size: int, blocks: int) -> None:
        recording = self.recording
        before, block = self.blocks.get(key, (0, 0))
        if size == before:
            return
        if before:
            recording.free(block)
            del self.blocks[key]
        if size:
            stream, pool = map(lambda names, name: names.number(name or "default pool"),
                               (recording.streams, recording.pools), key)
            block = recording.alloc(size, stream, pool=pool)
            recording.set_label(block, f"{blocks} blocks" if blocks else "")
            self.blocks[key] = size, block

    def _set_reserved(self, size: int) -> None:
        """One span, at no address."""
        spans, state, before = self.recording.spans, self.recording.operations, self.reserved_bytes
        if size == before:
            return
        if before:
            spans.unmap(state, 0, before, 0, 0)
        if size:
            spans.map(state, 0, size, 0, 0)
        self.reserved_bytes = size


def _stream_name(handle: str) -> str:
    return "default stream" if int(handle, 16) == 0 else f"stream {handle}"


def _find_vmmtop(path) -> str:
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "vmmtop")
    found = path or shutil.which("vmmtop") or (beside if os.access(beside, os.X_OK) else None)
    if found is None or shutil.which(found) is None:
        raise ReportError("the process records no trace, and samples need vmmtop, which was not found: name it with "
                          "--vmmtop, or start the process with VMM_TRACE=FILE")
    return found


def _folder(pid: int) -> list:
    """The options of vmmtop for the folder in which the process publishes."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        variables = {}
    folder = variables.get(b"VMM_MONITOR", b"")
    return ["--dir", os.fsdecode(folder)] if folder.startswith(b"/") else []
