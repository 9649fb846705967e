"""Snapshots in files: read without running what a pickle may ask for, and their opcodes."""
from __future__ import annotations

import io
import pickle
import pickletools

_TOLD_MOST = 300

# All that the viewer on the web can read.
OPCODES = frozenset((
    "PROTO", "FRAME", "MEMOIZE", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "SETITEM", "SETITEMS",
    "APPEND", "APPENDS", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"))


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which no snapshot needs")


def read(path) -> tuple:
    """The snapshot in a file, and what the viewer on the web could not read in it, a line for each opcode.

    Raises pickle.UnpicklingError for what is none; runs nothing, and takes no more memory than the file is
    worth.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        faults = opcode_faults(data)
        found = _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # whatever junk makes of the machine that unpickles
        raise pickle.UnpicklingError(_told(error)) from error
    if not isinstance(found, dict) or "segments" not in found:
        raise pickle.UnpicklingError("it has no segments")
    return found, faults


def _told(error: Exception) -> str:
    """In one line that is not long."""
    told = str(error) if isinstance(error, pickle.UnpicklingError) else f"{type(error).__name__}: {error}"
    told = " ".join(told[:_TOLD_MOST].split())
    return "".join(letter if letter.isprintable() else "?" for letter in told)


def opcode_faults(data: bytes) -> list:
    """What the viewer on the web could not read in a pickle, a line for each opcode.

    Raises ValueError or pickle.UnpicklingError for what is no pickle, or claims to be longer than it is.
    """
    found = {}
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument > len(data):
            # the machine would make room for as many
            raise pickle.UnpicklingError(f"index {argument} at {position}, in {len(data)} bytes")
        if opcode.name == "PROTO" and not 2 <= argument <= 4:
            found["PROTO"] = f"it is of protocol {argument}; 2 to 4 can be read"
        if opcode.name == "LONG1" and not -(1 << 63) <= argument < 1 << 63:
            found["LONG1"] = f"a number of more than 64 bits at {position}"
        if opcode.name not in OPCODES:
            found.setdefault(opcode.name, f"opcode {opcode.name} at {position}")
    return list(found.values())
