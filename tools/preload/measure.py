"""How long a command runs, and how much GPU memory is in use while it does.

The memory is that of all GPUs together, as NVML says, above the least of the same time: the command and
what CUDA itself needs for it. Other processes on these GPUs would be counted, too. It is read every few milliseconds,
so a peak that is shorter may be missed. Neither root nor a CUDA context is needed.

Imported by: tools/preload/check.py.
"""
import ctypes
import os
import sys
import threading
import time

MIB = 1 << 20
UNKNOWN = "-"


class _Memory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Nvml:
    """Reads the memory in use by NVML. Raises OSError where that is not possible."""

    seconds = 0.002  # between two readings

    def __init__(self, library=None):
        self.library = library or ctypes.CDLL("libnvidia-ml.so.1")
        count = ctypes.c_uint()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.devices = [ctypes.c_void_p() for _ in range(count.value)]
        for number, device in enumerate(self.devices):
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
        if not self.devices:
            raise OSError("NVML knows no GPU")
        self.read()

    def _call(self, name, *arguments):
        try:
            status = getattr(self.library, name)(*arguments)
        except AttributeError as error:
            raise OSError("NVML has no %s" % name) from error
        if status != 0:
            raise OSError("%s returned %d" % (name, status))

    def read(self):
        total = 0
        for device in self.devices:
            memory = _Memory()
            self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            total += memory.used
        return total


def open_meter(library=None):
    """None: NVML does not work here."""
    try:
        return Nvml(library)
    except OSError:
        return None


class Measured:
    """Measures what happens in a `with`: `seconds`, and `peak` in bytes (None: unknown)."""

    def __init__(self, meter):
        self.meter = meter
        self.seconds, self.peak = 0.0, None
        self._readings, self._end = [], threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._read()
        self._thread.start()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self._begin
        self._end.set()
        self._thread.join()
        if self._readings:
            self.peak = max(self._readings) - min(self._readings)

    def _watch(self):
        while self.meter is not None and not self._end.wait(self.meter.seconds):
            self._read()

    def _read(self):
        """A reading that fails is left out."""
        try:
            if self.meter is not None:
                self._readings.append(self.meter.read())
        except OSError:
            pass


class Results:
    """What was measured of programs, plain and with the library."""

    def __init__(self):
        self._found = {}  # name: (plain, with the library), lists of Measured

    def add(self, name, preloaded, measured):
        self._found.setdefault(name, ([], []))[preloaded].append(measured)

    def rows(self):
        """Of each program that ran both ways: its name, best seconds and largest peaks, each plain and preloaded."""
        for name, ways in self._found.items():
            if all(ways):
                yield (name, *(seconds_text(way) for way in ways), *(peak_text(way) for way in ways))

    def lines(self):
        """As a table of Markdown."""
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pages"))
        from documents import table
        rows = list(self.rows())
        head = ("program", "s, plain", "s, preloaded", "MiB, plain", "MiB, preloaded")
        return list(table(head, rows)) if rows else []


def seconds_text(runs):
    return "%.2f" % min(run.seconds for run in runs)


def peak_text(runs):
    peaks = [run.peak for run in runs if run.peak is not None]
    return "%.0f" % (max(peaks) / MIB) if peaks else UNKNOWN
