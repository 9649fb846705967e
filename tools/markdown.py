"""What the tools that write documents share: tables, and the regions of a document that are theirs.

May be imported by: scripts in tools/.
"""


def table(head, rows, texts=1):
    """Lines of a table; the first columns are text, the others are figures."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * texts + "--:|" * (len(head) - texts)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def region_replaced(text, name, writer, lines):
    """The text with the lines between the two marks of a region replaced."""
    begin, end = "<!-- %s by %s -->\n" % (name, writer), "<!-- end of %s -->" % name
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit("the document has no region between %s and %s" % (begin.strip(), end))
    return before + begin + "\n".join(lines) + "\n" + end + after
