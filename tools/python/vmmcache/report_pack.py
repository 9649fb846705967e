"""Writes a Recording into the page: a head of JSON, and the columns as bytes, compressed, in base64.

A column becomes as many planes as its largest value has bytes: first the lowest byte of every value, and so on.
That compresses well, and takes no time to write. tools/report/src/columns.ts reads it.
"""
from __future__ import annotations

import base64
import html
import itertools
import json
import operator
import os
import sys
import zlib
from array import array

from .report_recording import Recording, is_failure

FORMAT = 1
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "report_page.html")
_TITLE, _HEAD, _DATA = "@@TITLE@@", "@@HEAD@@", "@@DATA@@"


def page(recording: Recording, what_if, version: str) -> bytes:
    """The whole page. what_if: what report_what_if.run() returned, or None."""
    columns, data = _columns(recording)
    head = {
        "format": FORMAT, "version": version, "name": recording.name, "kind": recording.kind,
        "device": recording.device, "devices": recording.devices, "operations": recording.operations,
        "chunk_bytes": recording.chunk_bytes, "columns": columns,
        "frames": {"parents": list(recording.frames.parents), "texts": recording.frames.texts},
        "streams": recording.streams.texts, "pools": recording.pools.texts, "labels": recording.labels.texts,
        "notes": [(state, text, is_failure(text)) for state, text in recording.notes], "what_if": what_if,
    }
    with open(TEMPLATE, encoding="utf-8") as file:
        template = file.read()
    before, rest = template.split(_TITLE)
    middle, rest = rest.split(_HEAD)
    between, after = rest.split(_DATA)
    text = json.dumps(head, separators=(",", ":")).replace("<", "\\u003c")  # so that no text ends the element
    return b"".join((before.encode(), html.escape(recording.name).encode(), middle.encode(), text.encode(),
                     between.encode(), base64.b64encode(data), after.encode()))


def _columns(recording: Recording) -> tuple:
    """What the head says of the columns, and their planes in the same order, compressed as one."""
    told, parts, packer = [], [], zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: as gzip
    for name, column, is_sum in _all(recording):
        if is_sum:
            column = array(column.typecode, itertools.chain(column[:1], map(operator.sub, column[1:], column)))
        planes = (max(column, default=0).bit_length() + 7) // 8
        told.append({"name": name, "count": len(column), "planes": planes, "is_sum": is_sum})
        parts += map(packer.compress, _planes(column, planes))
    parts.append(packer.flush())
    return told, b"".join(parts)


def _all(recording: Recording):
    """(name, column, whether differences are written) of each."""
    for kind, columns in (("", recording), ("span_", recording.spans), ("mapping_", recording.mappings)):
        for name in columns.TYPES:
            yield kind + name, getattr(columns, name), kind + name == "start"
    yield "times", recording.times, True


def _planes(column: array, planes: int):
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    data = column.tobytes()
    return (data[plane::column.itemsize] for plane in range(planes))
