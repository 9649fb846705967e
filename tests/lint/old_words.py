"""Names that the project no longer uses: each has a word of the field in its place.

usage: old_words.py ROOT [FOLDER...]

Looks at identifiers, comments and documents. CHANGELOG.md lists the old public names and is left out.
"""
import re
import sys

import sources

# (pattern, what to write instead). A pattern matches whole words, or parts of identifiers between underscores.
WORDS = (
    (r"territor(?:y|ies)", "extent"),
    (r"voids|(?:a|the|each|every|one) void(?=[ ,.;:])", "gap"),
    (r"handouts?", "alloc path"),
    (r"ladders?", "reclaim"),
    (r"shortages?", "out of memory, oom"),
    (r"favourites?", "bias owner"),
    (r"knowers?", "cached_by"),
    (r"crowded", "contended"),
    (r"detours?", "slow path"),
    (r"ledgers?", "totals"),
    (r"surveys?|quests?", "scan"),
    (r"overdue", "expired"),
    (r"astray", "remap pending"),
    (r"reback(?:ed|s)?|re-back(?:ed|ing|s)?", "relocate"),
    (r"mesh(?:ed|es|ing)?|twins?|lent|unlend", "nothing: it is gone"),
    (r"deeds?", "call site"),
    (r"struck", "cancelled"),
    (r"soaks?", "stress"),
    (r"crews?", "worker"),
    (r"chapters?", "scenario"),
    (r"private pools?|privates", "graph pool"),
    (r"lost[ _]watch(?:es)?", "lost listener"),
    (r"seats?", "thread slot"),
    (r"suppl(?:y|ies|ied|ying)", "refill"),
    (r"vmm_use|vmm_tick|vmm_watch|vmm_watch_fn|vmm_misuse_write|vmm_figure|vmm_sharing|vmm_guard", "the name of today"),
    (r"VMM_GUARD(?:_\w+)?|VMM_SHARING(?:_\w+)?|VMM_MARKS|VMM_FIGURE_MAP|VMM_NUMBER_MAP", "the name of today"),
)
LEFT_OUT = ("CHANGELOG.md", "tests/lint/", "docs/results/")


def patterns():
    for words, instead in WORDS:
        yield re.compile(r"(?<![A-Za-z0-9])(?:%s)(?![A-Za-z0-9])" % words), instead


def main(root, folders):
    paths = [path for path in sources.files(root, folders or sources.FOLDERS, sources.TEXT_ENDINGS, top=not folders)
             if not path.startswith(LEFT_OUT)]
    faults = []
    searched = list(patterns())
    for path in paths:
        for number, line in enumerate(sources.text(root, path).splitlines(), 1):
            for pattern, instead in searched:
                match = pattern.search(line)
                if match:
                    faults.append("%s:%d: '%s'; write: %s" % (path, number, match.group(0), instead))
    sources.finish("old words", len(paths), faults)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
