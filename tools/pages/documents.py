"""Shared by the tools that write documents: sections, tables, the generated regions of a document, what was measured.

Imported by: scripts in tools/.
"""
import contextlib
import datetime
import os
import subprocess
import sys
from importlib import metadata


def measured():
    """The commit of this checkout, and the day."""
    git = ["git", "-C", os.path.dirname(os.path.abspath(__file__))]
    try:
        commit = subprocess.check_output([*git, "rev-parse", "--short=8", "HEAD"], text=True).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain", ":/src", ":/tools/fragtest"], text=True)
    except (OSError, subprocess.CalledProcessError):
        commit, changed = "unknown", ""
    today = datetime.date.today()
    return "commit %s%s, %d %s" % (commit, " with changes" if changed else "", today.day, today.strftime("%B %Y"))


def versions(*names):
    """(name, version) of Python and of those packages that are installed."""
    yield "Python", "%d.%d.%d" % sys.version_info[:3]
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def table(head, rows, texts=1):
    """The lines of a table; the first `texts` columns are text, the others figures."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * texts + "--:|" * (len(head) - texts)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def code(lines, language=""):
    return ["```" + language, *lines, "```"]


def section(*parts):
    """A heading and what follows: texts, and lines such as those of a table, with an empty line before each."""
    for part in parts:
        yield ""
        yield from [part] if isinstance(part, str) else part


def document(sections):
    """The text of a whole document."""
    return "\n".join(line for lines in sections for line in lines).lstrip("\n") + "\n"


def replace_region(text, name, writer, lines):
    """Replaces the lines between the two marks of a region; returns the text."""
    begin, end = "<!-- %s by %s -->\n" % (name, writer), "<!-- end of %s -->" % name
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit("the document has no region between %s and %s" % (begin.strip(), end))
    return before + begin + "\n".join(lines) + "\n" + end + after
