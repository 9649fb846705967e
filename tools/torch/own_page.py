"""The page that own_tests.py writes: which of PyTorch's and CuPy's own tests fail with vmmcache only.

Imported by: own_tests.py.
"""
import os
import re
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pages"))
from documents import document, section, table, versions  # noqa: E402
from processes import FAIL, PASS, SKIP  # noqa: E402

KINDS = NATIVE, OURS = ("native", "vmmcache")
COLUMNS = (("passed with both", (PASS, PASS)), ("failed with both", (FAIL, FAIL)), ("skipped with both", (SKIP, SKIP)),
           ("failed only with native", (FAIL, None)), ("failed only with vmmcache", (None, FAIL)))
SKIPPED_WITH_ONE, NOT_RUN = "skipped with one", "not run"
PLACE = re.compile(r"(?<![\w:/])/(?:[^/\s\"']+/)+")  # of a file of this machine
PACKAGES = ("torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "expecttest", "pytest")


def column_of(outcomes):
    """Of {allocator: Result}."""
    if len(outcomes) < 2:
        return NOT_RUN
    words = tuple(outcomes[kind].word for kind in KINDS)
    for name, wanted in COLUMNS:
        if all(word == other or other is None for word, other in zip(words, wanted)):
            return name
    return SKIPPED_WITH_ONE


def differing(results):
    """The tests with two outcomes."""
    return [key for key, outcomes in results.items()
            if len(outcomes) == 2 and len({each.word for each in outcomes.values()}) == 2]


def grouped(run):
    """{column: [(file, test)]}, with every test that was to run."""
    found = {}
    for source in run.sources:
        for name in source.names:
            key = source.name, name
            found.setdefault(column_of(run.first.get(key, {})), []).append(key)
    return found


def only_ours(run):
    return grouped(run).get("failed only with vmmcache", [])


def verdict(run):
    names = only_ours(run)
    return "failed only with vmmcache: %d%s" % (len(names), "".join("\n  %s %s" % key for key in names))


def said(*command):
    try:
        return subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              cwd=os.path.dirname(os.path.abspath(__file__)), timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine():
    """Of this machine; the same for the whole run."""
    gpu = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    commit = os.environ.get("COMMIT") or said("git", "describe", "--always", "--dirty")
    return ["* GPU: %s" % (gpu.replace("\n", "; ") or "unknown"),
            "* commit: %s, %s" % (commit or "unknown", time.strftime("%Y-%m-%d", time.gmtime())),
            "* " + ", ".join(map(" ".join, versions(*PACKAGES)))]


def head(run, groups):
    ours = "the plug-in" if run.options.plugin else "the allocator class"
    both = sum(len(names) for column, names in groups.items() if column != NOT_RUN)
    return section(
        "# PyTorch's own tests",
        "Written by `tools/torch/own_tests.py`: tests of %s, each with PyTorch's allocator (*native*) and with "
        "%s of libvmmcache (*vmmcache*), %.0f s." % (
            " and ".join(sorted({each.version for each in run.sources})), ours, time.monotonic() - run.begun),
        run.machine,
        "**Failed only with vmmcache: %d** of %d." % (len(groups.get("failed only with vmmcache", [])), both),
        counts(run, groups))


def counts(run, groups):
    columns = [name for name, _ in COLUMNS] + [SKIPPED_WITH_ONE, NOT_RUN]
    return table(["file", *columns], [
        [file or "all", *(str(sum(file in (None, each) for each, _ in groups.get(column, ()))) for column in columns)]
        for file in [source.name for source in run.sources] + [None]])


def entry(run, key):
    """A test with what each side said, the first time and alone."""
    path, colons, name = key[1].partition("::")
    yield "* %s, `%s`" % ((path, colons + name) if colons else (key[0], key[1].split(".", 1)[-1]))
    for kind in KINDS:
        for when, results in (("", run.first), (", alone", run.again)):
            result = results.get(key, {}).get(kind)
            if result:
                reason = re.sub(r"([|<*_])", r"\\\1", PLACE.sub("", result.reason))
                yield "  * %s%s: %s%s" % (kind, when, result.word, ": " + reason if reason else "")


def page(run):
    """Its text."""
    groups = grouped(run)
    parts = [head(run, groups)]
    for column in ("failed only with vmmcache", "failed only with native", SKIPPED_WITH_ONE, "failed with both"):
        names = groups.get(column, [])
        if names:
            parts.append(section("## %s (%d)" % (column.capitalize(), len(names)),
                                 [line for key in sorted(names) for line in entry(run, key)]))
    notes = ["* there is no %s" % name for name in run.missing]
    for source in run.sources:
        notes += ["* %s: %s" % (source.name, text) for text in source.broken]
        if source.replaced:
            notes.append("* %s imports names that this PyTorch does not have: %s" % (
                source.name, ", ".join(sorted(set(source.replaced)))))
    return document(parts + ([section("## Files", notes)] if notes else []))
