"""What if: replays the requests of a Recording with fragtest, under other policies and settings, on a simulated GPU."""
from __future__ import annotations

import csv
import json
import os
import subprocess
import tempfile
from array import array

from .report_recording import Recording, ReportError

_MIB = 1 << 20

# (what the page calls it, arguments of fragtest)
PLANS = (
    ("block-splitting", ("--policy", "block-splitting")),
    ("expandable", ("--policy", "expandable")),
    ("vmmcache", ("--policy", "vmmcache")),
    ("vmmcache, footprint 1 %", ("--policy", "vmmcache", "--footprint", "10")),
    ("vmmcache, footprint any", ("--policy", "vmmcache", "--footprint", "any")),
    ("vmmcache, compaction on", ("--policy", "vmmcache", "--compaction", "on")),
)


def run(recording: Recording, fragtest: str) -> list:
    """An entry for each plan: peaks, the smallest limit that it survives, and reserved memory over the states."""
    with tempfile.TemporaryDirectory(prefix="vmmcache-report-") as folder:
        trace = os.path.join(folder, "requests.trace")
        states = _write_trace(recording, trace)
        return [_entry(os.path.abspath(fragtest), trace, states, name, arguments) for name, arguments in PLANS]


def _write_trace(recording: Recording, path: str) -> array:
    """Returns the state after each line."""
    states = array("I")
    with open(path, "wb") as file:
        for line, state in recording.lines():
            file.write(line)
            states.append(state)
    return states


def _replay(fragtest: str, trace: str, folder: str, arguments: tuple) -> None:
    """Leaves results.json and timeline.csv in the folder."""
    command = [fragtest, "--trace", trace, "--driver", "sim", "--memory", "none", "--least",
               "--quiet", "--json", "results.json", "--timeline", "timeline.csv", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    except OSError as error:
        raise ReportError(f"{fragtest}: {error.strerror}") from error
    if not os.path.exists(os.path.join(folder, "results.json")):
        said = done.stderr.strip().splitlines()
        raise ReportError(f"{fragtest}: {said[-1] if said else 'it wrote no results'}")


def _entry(fragtest: str, trace: str, states: array, name: str, arguments: tuple) -> dict:
    with tempfile.TemporaryDirectory(prefix="vmmcache-report-") as folder:
        _replay(fragtest, trace, folder, arguments)
        try:
            with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
                found = json.load(file)["runs"][0]
            with open(os.path.join(folder, "timeline.csv"), encoding="utf-8", newline="") as file:
                rows = [(states[int(row["operation"])], int(row["reserved_bytes"])) for row in csv.DictReader(file)]
            return _told(name, found, rows)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ReportError(f"{fragtest}: cannot read its results: {error}") from error


def _told(name: str, found: dict, rows: list) -> dict:
    """What the page needs of a run; rows: (state, reserved bytes)."""
    return {"name": name, "ok": found["ok"], "reason": found["reason"],
            "lower_bound": _bytes(found["lower_bound_mib"]), "peak_reserved": _bytes(found["peak_reserved_mib"]),
            "least": _bytes(found["least_mib"]), "driver_ms": found["driver_ms"],
            "states": [state for state, _ in rows], "reserved": [reserved for _, reserved in rows]}


def _bytes(mib):
    return None if mib is None else round(mib * _MIB)
