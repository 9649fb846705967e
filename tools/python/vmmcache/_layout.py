"""The structures of vmmcache.h and torch.h, as ctypes sees them.

Fields and their order are those of the headers; tests/python compares sizes with the library's own
answers to struct_size. Those of vmm_stats come from the library.
"""
import ctypes

u32, u64, size_t, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p

VERSION = (0, 2)  # major and minor of the headers

STATUS_OK = 0
DRIVER_CUDA, DRIVER_HOST, DRIVER_SIM = 1, 2, 3
STATUS_DEVICE_OOM = 3
NO_MEMORY = (3, 4, 5)  # of the device, of the host, addresses

ON_SLEEP_KEEP, ON_SLEEP_DISCARD = 0, 1  # vmm_on_sleep
TAG_BYTES = 64

STACK_FN = ctypes.CFUNCTYPE(u64)
PRESSURE_FN = ctypes.CFUNCTYPE(ctypes.c_int, pointer, size_t)
OOM_FN = ctypes.CFUNCTYPE(None, ctypes.c_int, u64, u64, u64)

ON, OFF = 1, 2  # vmm_switch
REUSE = {"any_use": 1, "declared": 2, "stream_wait": 3}
COMPACTION = {"on": ON, "off": OFF}
FOOTPRINT_ANY = 0xFFFFFFFF

STAT_OVER_TIME = 0  # vmm_stat_kind
UNIT_BYTES, UNIT_COUNT, UNIT_NANOSECONDS = 0, 1, 2  # vmm_stat_unit
KIND_FIGURES = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "allocations",
                "active")


class _Sized(ctypes.Structure):
    """Begins with its size, which tells the library the fields that this package knows."""
    _fields_ = [("struct_size", size_t)]

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


def value_of(field):
    """What Python has for the value of a field: a dictionary for a structure, a str for a text."""
    if isinstance(field, ctypes.Structure):
        return {name: value_of(getattr(field, name)) for name, _ in field._fields_}
    return field.decode(errors="replace") if isinstance(field, bytes) else field


class Config(_Sized):
    """vmm_config"""
    _fields_ = [
        ("device", ctypes.c_int), ("driver", ctypes.c_int),
        ("device_bytes", u64), ("limit_bytes", u64), ("arena_bytes", u64),
        ("no_caching", ctypes.c_int), ("log", pointer), ("log_context", pointer),
        ("footprint_permille", u32), ("reuse", ctypes.c_int), ("compaction", ctypes.c_int),
        ("decay_ms", u32), ("decay_keep_bytes", u64), ("decay_thread", ctypes.c_int),
        ("clock", pointer), ("clock_context", pointer), ("pressure", PRESSURE_FN),
        ("pressure_context", pointer), ("peer_devices", u64), ("zero", ctypes.c_int),
        ("debug", ctypes.c_int), ("misuse", pointer), ("misuse_context", pointer), ("nvtx", ctypes.c_int),
        ("shareable", ctypes.c_int), ("views", ctypes.c_int), ("clock_kind", ctypes.c_int),
        ("announces_captures", ctypes.c_int), ("neighbours", ctypes.c_int), ("neighbours_wait_ms", u32),
        ("neighbours_floor_bytes", u64), ("neighbours_priority", u32), ("neighbours_pressure", ctypes.c_int),
        ("neighbours_name", ctypes.c_char_p),
    ]


class Figure(ctypes.Structure):
    """vmm_stat"""
    _fields_ = [("current", u64), ("peak", u64), ("allocated", u64), ("freed", u64)]


class StatDescription(ctypes.Structure):
    """vmm_stat_description"""
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_int), ("kind", ctypes.c_int), ("of_pools", ctypes.c_int),
                ("offset", size_t), ("label", ctypes.c_char_p), ("text", ctypes.c_char_p)]


class Stats(_Sized):
    """vmm_stats, with the statistics that the library describes: see describe_stats()."""
    labels: dict = {}  # {name: (label, unit)}


def describe_stats(describe):
    """Gives Stats its fields. They are those of the first library that was loaded."""
    if Stats.labels:
        return
    fields = []
    while found := describe(len(fields)):
        stat = found.contents
        fields.append((stat.name.decode(), Figure if stat.kind == STAT_OVER_TIME else u64))
        Stats.labels[fields[-1][0]] = stat.label.decode(), stat.unit
    Stats._fields_ = fields


class TraceOptions(_Sized):
    """vmm_trace_options"""
    _fields_ = [("stacks", ctypes.c_int)]


class KindFigures(ctypes.Structure):
    """vmm_torch_kind_stats"""
    _fields_ = [(name, Figure) for name in KIND_FIGURES]


class TorchFigures(_Sized):
    """vmm_torch_stats"""
    _fields_ = [("small", KindFigures), ("large", KindFigures)]


class Snapshot(_Sized):
    """vmm_torch_snapshot"""
    _fields_ = [
        ("segments", pointer), ("blocks", pointer), ("events", pointer),
        ("segment_count", u64), ("block_count", u64), ("event_count", u64), ("lost_events", u64),
    ]


class TorchPool(ctypes.Structure):
    """vmm_torch_pool"""
    _fields_ = [("pool", pointer), ("id_first", u64), ("id_second", u64), ("tag", ctypes.c_char * TAG_BYTES),
                ("device", ctypes.c_int), ("discards", ctypes.c_int)]


class Neighbour(_Sized):
    """vmm_neighbour"""
    _fields_ = [("pid", u64), ("is_self", ctypes.c_int), ("priority", u32),
                ("floor_bytes", u64), ("limit_bytes", u64), ("live_bytes", u64), ("reserved_bytes", u64),
                ("idle_bytes", u64), ("asleep_bytes", u64), ("given_bytes", u64), ("claims", u64), ("want_bytes", u64),
                ("name", ctypes.c_char * TAG_BYTES)]


NEIGHBOUR_FN = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(Neighbour))


class Part(_Sized):
    """vmm_part"""
    _fields_ = [("address", u64), ("bytes", u64), ("handle", u64), ("handle_bytes", u64),
                ("offset", u64)]


PART_FN = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(Part))


class SleepOptions(_Sized):
    """vmm_sleep_options"""
    _fields_ = [("on_sleep", ctypes.c_int), ("staging_bytes", u64), ("unmapping", pointer),
                ("mapped", pointer), ("context", pointer), ("on_claim", ctypes.c_int)]
