"""Shared by the tools that write documents: tables, and the generated regions of a document.

Imported by: scripts in tools/.
"""


def table(head, rows, texts=1):
    """The lines of a table; the first `texts` columns are text, the others figures."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * texts + "--:|" * (len(head) - texts)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def replace_region(text, name, writer, lines):
    """Replaces the lines between the two marks of a region; returns the text."""
    begin, end = "<!-- %s by %s -->\n" % (name, writer), "<!-- end of %s -->" % name
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit("the document has no region between %s and %s" % (begin.strip(), end))
    return before + begin + "\n".join(lines) + "\n" + end + after
