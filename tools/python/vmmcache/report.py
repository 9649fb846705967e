"""Shows a trace, a memory snapshot or a running process as one HTML page: memory over time, the memory map, stacks,
fragmentation.

The page is self-contained and loads nothing from the network. docs/report.md describes it.
"""
from __future__ import annotations

import argparse
import gzip
import os
import sys
import zlib

from . import (_file, report_pack, report_perfetto, report_process, report_requests, report_snapshot, report_trace,
               report_what_if)
from .report_recording import Recording, ReportError

BAD_INPUT = 2
INTERRUPTED = 130  # as a shell has it
_MOST_DIGITS = 20  # of a pid; Python refuses to read thousands
_PICKLE, _JSON = b"\x80", b"{"
_CUT = "the recording ends here: the file was cut"
_ENDINGS = (".gz", ".trace", ".txt", ".pickle", ".pkl", ".json")


def main(arguments=None) -> int:
    """The command vmmcache-report. Returns its exit status: 0, or 2 or 130 after one line on stderr."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.output or options.perfetto or options.trace):
        parser.error("one of -o, --perfetto and --trace is required")
    try:
        _demand_other_files(options)
        _write(options, _read_input(options))
    except ReportError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or options.input}: {error.strerror or error}")
    except MemoryError:
        return _refuse(f"{options.input}: out of host memory")
    except KeyboardInterrupt:
        _refuse("interrupted")
        return INTERRUPTED
    return 0


def _read_input(options) -> Recording:
    """Digits are a pid, unless a file has that name."""
    name = options.input
    if not (name.isascii() and name.isdigit()) or os.path.exists(name):
        return read(name, options.device)
    if len(name) > _MOST_DIGITS:
        raise ReportError(f"{name[:_MOST_DIGITS]}... is neither a file nor a pid")
    return report_process.read(int(name), options.seconds, options.vmmtop, options.device)


def _demand_other_files(options) -> None:
    """Raises ReportError if an output would replace the input, or another output."""
    outputs = [(option, path) for option, path in (("-o", options.output), ("--perfetto", options.perfetto),
                                                   ("--trace", options.trace)) if path]
    for at, (option, path) in enumerate(outputs):
        if os.path.exists(options.input) and _is_same_file(path, options.input):
            raise ReportError(f"{path}: it is the input; {option} would replace it")
        for earlier, other in outputs[:at]:
            if _is_same_file(path, other):
                raise ReportError(f"{path}: {earlier} and {option} are the same file")


def _is_same_file(path: str, other: str) -> bool:
    """Whether to write one would replace the other. A device takes both."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.isfile(path) and os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _demand_history(options, recording: Recording) -> None:
    """Raises ReportError for what --trace cannot convert."""
    if recording.kind == "samples":
        raise ReportError("--trace writes requests, which samples have not: start the process with VMM_TRACE=FILE")
    if recording.kind == "trace":
        raise ReportError(f"{options.input}: it is a trace already; --trace converts snapshots")
    if not report_requests.has_history(recording):
        raise ReportError(f"{options.input}: the snapshot has no history, so a trace would have no frees: call "
                          "torch.cuda.memory._record_memory_history() before the part of interest")


def _write(options, recording: Recording) -> None:
    if options.fragtest and recording.kind == "samples":
        raise ReportError("--fragtest replays requests, which samples have not: start the process with VMM_TRACE=FILE")
    if options.trace:
        _demand_history(options, recording)
        report_requests.write(recording, options.trace)
    if options.perfetto:
        report_perfetto.write(recording, options.perfetto)
    if options.output:
        what_if = report_what_if.run(recording, options.fragtest) if options.fragtest else None
        _file.write(options.output, report_pack.page(recording, what_if, _version()))


def read(path: str, device=None) -> Recording:
    """The recording in a file: a trace, text or gzip, or a snapshot, pickle or JSON. Raises ReportError."""
    with open(path, "rb") as file:
        start = file.read(2)
        if start[:1] == _PICKLE:
            return report_snapshot.read(report_snapshot.load_pickle(path), path, _name(path), device)
        file.seek(0)
        try:
            return _read_text(report_trace.unpacked(file), path, device)
        except EOFError as error:
            raise ReportError(f"{path}: the gzip data ends too early") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ReportError(f"{path}: damaged gzip data ({error})") from error


def _read_text(file, path: str, device) -> Recording:
    if file.peek(1)[:1] == _JSON:
        return report_snapshot.read(report_snapshot.load_json(file.read(), path), path, _name(path), device)
    recording = report_trace.read(file, path, _name(path))
    if recording.is_cut:
        recording.notes.append((recording.operations, _CUT))
        _say(f"{path}: the file was cut: shown up to its last whole line")
    return recording


def _name(path: str) -> str:
    """a/b/gnn.trace.gz is called gnn. A file may have a name that is no text."""
    name = os.fsencode(os.path.basename(path)).decode(errors="replace")
    for ending in _ENDINGS:
        if name.endswith(ending) and name != ending:
            name = name[:-len(ending)]
    return name


def _version() -> str:
    """Of the package, if it is installed; no library is loaded for it."""
    try:
        from importlib.metadata import version
        return version("vmmcache")
    except ImportError:  # PackageNotFoundError is one
        return ""


def _say(what: str) -> None:
    print("vmmcache-report:", " ".join(what.split()), file=sys.stderr)


def _refuse(what: str) -> int:
    _say(what)
    return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vmmcache-report", description=__doc__)
    parser.add_argument("input", metavar="trace|snapshot|pid",
                        help="a trace, text or gzip; a snapshot, pickle or JSON; "
                        "a process that runs with VMM_TRACE or VMM_MONITOR")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="the page to write")
    parser.add_argument("--perfetto", metavar="TRACE.json",
                        help="write a trace for Perfetto and chrome://tracing; .json.gz is compressed")
    parser.add_argument("--trace", metavar="FILE.trace",
                        help="write the requests of a snapshot with history as a trace, for fragtest; "
                        ".trace.gz is compressed")
    parser.add_argument("--device", type=int,
                        help="which device of a snapshot or of samples (default: the one with the most memory)")
    parser.add_argument("--seconds", type=float, default=10, metavar="N",
                        help="how long to sample a process that does not record (default: 10)")
    parser.add_argument("--vmmtop", metavar="PATH", help="the program vmmtop, for samples (default: the one on PATH)")
    parser.add_argument("--fragtest", metavar="PATH",
                        help="the program fragtest: adds what other policies and settings would have reserved")
    return parser


if __name__ == "__main__":
    sys.exit(main())
