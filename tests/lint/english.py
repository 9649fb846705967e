"""Constructions that make comments, messages and documents hard to read.

usage: english.py ROOT [FOLDER...]

Each row is a riddle that this project once used, with the plain way to say it. Looks at comments and strings of C and
C++, docstrings and comments of Python, comments of CMake and shells, and documents.
"""
import re
import sys

import sources

RIDDLES = (
    (r"\bnobody('s)?\b", "name the owner, or say 'unowned'"),
    (r"\b(whoever|whosoever|whatever else)\b", "name the caller"),
    (r"\b(is|are|was|were|be) told\b", "say which function is called, or what is written where"),
    (r"(?-i:^Told\b|[.:;] Told\b)", "subject, verb, object"),
    (r"\b(comes?|came) to (?!an end|the)", "say what happens"),
    (r"\bgoes back to\b", "is returned to, is released to"),
    (r"\bhad better\b", "should"),
    (r"\bof which\b(?! \S+( \w+)? is free)", "start a new sentence"),  # but for PyTorch's out-of-memory message
    (r"\bnone of (it|them|that)\b", "say what is not"),
    (r"\bfor want of\b", "because ... ran out"),
    (r"\bin vain\b", "without effect; and failed"),
    (r"\ball the same\b", "still, anyway"),
    (r"\bno more\b(?= *[.,;:)]|$)", "no longer"),
    (r", should (it|they|that|this|he|one)\b", "if it ..."),
    (r"\b(as|so) (it|they) (will|may) be\b", "say what it is"),
    (r"\bsomebody('s)?\b", "name it"),
    (r"^(Of|From|By|With|To) (a|an|the|what) [^.,;]{1,60} (is|are|was|were) (told|had|made|known)\b", 
     "subject, verb, object"),
    (r"\bmends?\b|\bmended\b", "repair, retry, fix"),
    (r"\blacks?\b", "is missing, needs"),
    (r"\bspares?\b(?! records| list|\[)", "leave alone; free record"),
    (r"\bby and by\b|\bnow and then\b|\bhere and there\b", "say when"),
    (r"\bstory\b|\bstories\b", "report"),
)
LEFT_OUT = ("tests/lint/", "LICENSE", "CHANGELOG.md")
SCRIPT_ENDINGS = (".py", ".sh", ".cmake", "CMakeLists.txt")
PROSE_OF_C = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
PROSE_OF_SCRIPT = re.compile(r'""".*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def prose_lines(path, text):
    """(line number, line of prose)"""
    if path.endswith(".md"):
        yield from enumerate(text.splitlines(), 1)
        return
    pattern = PROSE_OF_C if path.endswith(sources.C_ENDINGS) else PROSE_OF_SCRIPT
    for match in pattern.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        for offset, line in enumerate(match.group(0).splitlines()):
            yield first + offset, re.sub(r"^[\s*/#\"]+", "", line)


def main(root, folders):
    endings = sources.C_ENDINGS + SCRIPT_ENDINGS + (".md",)
    paths = [path for path in sources.files(root, folders or sources.FOLDERS, endings, top=not folders)
             if not path.startswith(LEFT_OUT)]
    riddles = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in RIDDLES]
    faults = []
    for path in paths:
        for number, line in prose_lines(path, sources.text(root, path)):
            for pattern, instead in riddles:
                match = pattern.search(line)
                if match:
                    faults.append("%s:%d: '%s'; plainer: %s" % (path, number, match.group(0), instead))
    sources.finish("English", len(paths), faults)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
