"""Files that are written as a whole or not at all."""
from __future__ import annotations

import os
import threading


def write(path, data: bytes) -> None:
    """Puts a file with this content there. Until all of it is written, whatever was there stays. Raises OSError, with
    the path that was given."""
    try:
        _replace(path, data)
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def _replace(path, data: bytes) -> None:
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device cannot be replaced
        _write(path, "wb", data)
        return
    place = os.path.realpath(os.fsdecode(path))  # of a symbolic link, what it names
    part = f"{place}.{os.getpid()}-{threading.get_ident()}.part"
    try:
        _write(part, "xb", data)
        os.replace(part, place)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def _write(path, mode: str, data: bytes) -> None:
    with open(path, mode) as file:
        file.write(data)
