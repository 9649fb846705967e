"""Snapshots in files: read without running what a pickle may ask for, and their opcodes."""
from __future__ import annotations

import pickle
import pickletools

# All that the viewer on the web can read.
OPCODES = frozenset((
    "PROTO", "FRAME", "MEMOIZE", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "SETITEM", "SETITEMS",
    "APPEND", "APPENDS", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"))


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no snapshot needs")


def read(path):
    """The snapshot in a file. Raises pickle.UnpicklingError for what is none; runs nothing."""
    with open(path, "rb") as file:
        try:
            found = _PlainUnpickler(file).load()
        except OSError:
            raise
        except Exception as error:  # whatever junk makes of the machine that unpickles
            raise pickle.UnpicklingError(_told(error)) from error
    if not isinstance(found, dict) or "segments" not in found:
        raise pickle.UnpicklingError("it has no segments")
    return found


def _told(error: Exception) -> str:
    """In one line."""
    told = str(error) if isinstance(error, pickle.UnpicklingError) else f"{type(error).__name__}: {error}"
    return " ".join(told.split())


def opcode_faults(data: bytes) -> list:
    """What the viewer on the web could not read in a pickle, a line for each opcode."""
    found = {}
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name == "PROTO" and not 2 <= argument <= 4:
            found["PROTO"] = f"it is of protocol {argument}; 2 to 4 can be read"
        if opcode.name == "LONG1" and not -(1 << 63) <= argument < 1 << 63:
            found["LONG1"] = f"a number of more than 64 bits at {position}"
        if opcode.name not in OPCODES:
            found.setdefault(opcode.name, f"opcode {opcode.name} at {position}")
    return list(found.values())
