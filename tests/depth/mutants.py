"""Mutants of C code: small faults, each in one place of a function, as a careless change would bring them in.

What is not touched: comments, strings, directives of the preprocessor, anything outside of functions, the text and
values of error messages and log lines, and lines that end in a comment `hint: why`, where a fault costs time and nothing else.
"""
import re

SWAPS = [  # (kind, pattern, replacements by what was found)
    ("relation", r"(?<![-<>=!+*/%&|^])(<=|>=|==|!=|<|>)(?![<>=])",
     {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}),
    ("logic", r"&&|\|\|", {"&&": "||", "||": "&&"}),
    ("sum", r"(?<=[\w)\]] )([-+])(?= [\w(*])", {"+": "-", "-": "+"}),
    ("step", r"\+=|-=|\+\+|--", {"+=": "-=", "-=": "+=", "++": "--", "--": "++"}),
    ("product", r"(?<=[\w)\]] )([*/%])(?= [\w(])", {"*": "/", "/": "*", "%": "/"}),
    ("bits", r"<<|>>|(?<= )[&|](?= )", {"<<": ">>", ">>": "<<", "&": "|", "|": "&"}),
    ("truth", r"\b(true|false)\b", {"true": "false", "false": "true"}),
    ("status", r"\bVMM_(OK|NOT_READY|ERR_\w+)\b(?!\))", {"VMM_OK": "VMM_ERR_INTERNAL", None: "VMM_OK"}),
    ("status", r"(?<=return )status(?=;)", {"status": "VMM_OK"}),
]
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
CONDITION = re.compile(r"\b(?:else )?if (\()")
ASSIGNMENT = r"[*\w.\->\[\]]+ ?(?:[-+|&^*/]|<<|>>)?= [^;]*;"
STATEMENT = re.compile(r"^ +(?:(?:\(void\))?[\w.\->]+\([^;]*\);|%s|[*\w.\->\[\]]+(?:\+\+|--);)$" % ASSIGNMENT)


class Mutant:
    def __init__(self, path, kind, start, end, text, code):
        self.path, self.kind, self.start, self.end, self.text = path, kind, start, end, text
        self.number = 0  # among those of the file that look the same
        self.line = code.count("\n", 0, start) + 1
        self.before = code.splitlines()[self.line - 1]
        self.after = self.applied(code).splitlines()[self.line - 1]

    def applied(self, code):
        return code[:self.start] + self.text + code[self.end:]

    def key(self):
        """Stays what it is when other lines change."""
        return "%s: %s => %s (%d)" % (self.path, self.before.strip(), self.after.strip(), self.number)

    def diff(self):
        return "%s:%d (%s)\n- %s\n+ %s" % (self.path, self.line, self.kind, self.before.strip(), self.after.strip())


def blanked(code, pattern):
    """The code with what matches made blank, every place where it was."""
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found.group(0)), code, flags=re.DOTALL | re.M)


def closing(code, opening):
    """Where the bracket that opens at `opening` is closed."""
    depth = 0
    for place in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    raise ValueError("no closing bracket")


def bare(code):
    """What may be changed: bodies of functions, without comments, texts, messages and hints."""
    code = blanked(code, r"^[^\n]*/\* hint: .*?\*/$")
    code = blanked(code, r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
    code = blanked(code, r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$")
    code = blanked(code, r"\bsizeof\b[^;,)]*|\bcase [^:\n]*:|\b__attribute__\(\([^;{]*\)\)")
    for found in re.finditer(r"\bvmm__(?:error|cache_log)(\()", code):
        first = code.find(",", found.start(1))
        end = closing(code, found.start(1))
        if 0 < first < end:
            code = code[:first] + re.sub(r"[^\n]", " ", code[first:end]) + code[end:]
    outside = r"(?:\A|(?<=^\}\n)).*?(?=^\{$|\Z)"
    return blanked(code, outside)


def swaps(code):
    for kind, pattern, replacements in SWAPS:
        for found in re.finditer(pattern, code):
            word = found.group(0)
            text = replacements.get(word, replacements.get(None))
            if text is not None and text != word:
                yield kind, found.start(), found.end(), text


def numbers(code):
    for found in NUMBER.finditer(code):
        value = int(found.group(1))
        yield "number", found.start(), found.end(), str(1 if value == 0 else value - 1)
        if value != 0:
            yield "number", found.start(), found.end(), str(value + 1)


def negations(code, original):
    for found in CONDITION.finditer(code):
        end = closing(code, found.start(1)) + 1
        yield "condition", found.start(1), end, "(!%s)" % original[found.start(1):end]


def deletions(code):
    start = 0
    for line in code.splitlines(True):
        if STATEMENT.match(line.rstrip()):
            first = start + len(line) - len(line.lstrip())
            yield "deleted", first, start + len(line.rstrip()), ";"
        start += len(line)


def of_file(path, code):
    """All mutants of a file, in order."""
    ground = bare(code)
    places = [*swaps(ground), *numbers(ground), *negations(ground, code), *deletions(ground)]
    made = [Mutant(path, *place, code) for place in places]
    made.sort(key=lambda mutant: (mutant.start, mutant.kind, mutant.text))
    seen = {}
    for mutant in made:
        key = mutant.key()
        mutant.number = seen[key] = seen.get(key, -1) + 1
    return made
