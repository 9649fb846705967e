"""Mutants of C code: small faults, each in one place of a function, as a careless change would make them.

Mutants do not touch comments, strings, preprocessor directives, code outside of functions, the text and values of error
messages and log lines, and lines that end in a comment `hint: why`, where a fault costs time and nothing else. No
mutant leaves an assertion out, because sound code does the same without it.
"""
import re

SWAPS = [  # (kind, pattern, {text found: replacement})
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
CALL = r"(?!VMM_ASSERT)(?:\(void\))?[\w.\->]+\([^;]*\);"
STATEMENT = re.compile(r"^ +(?:%s|%s|[*\w.\->\[\]]+(?:\+\+|--);)$" % (CALL, ASSIGNMENT))


class Mutant:
    def __init__(self, path, kind, start, end, text, code):
        self.path, self.kind, self.start, self.end, self.text = path, kind, start, end, text
        self.number = 0  # among mutants of the file with the same lines
        self.line = code.count("\n", 0, start) + 1
        self.before = code.splitlines()[self.line - 1]
        self.after = self.applied(code).splitlines()[self.line - 1]

    def applied(self, code):
        return code[:self.start] + self.text + code[self.end:]

    def key(self):
        """A name that stays the same when other lines change."""
        return "%s: %s => %s (%d)" % (self.path, self.before.strip(), self.after.strip(), self.number)

    def diff(self):
        return "%s:%d (%s)\n- %s\n+ %s" % (self.path, self.line, self.kind, self.before.strip(), self.after.strip())


def blank(code, pattern):
    """The code with each match replaced by blanks, so that all positions stay the same."""
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found.group(0)), code, flags=re.DOTALL | re.M)


def find_closing(code, opening):
    """The position of the bracket that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    raise ValueError("no closing bracket")


def mutable_code(code):
    """The code that may be changed: bodies of functions; comments, texts, messages and hints are blank."""
    code = blank(code, r"^[^\n]*/\* hint: .*?\*/$")
    code = blank(code, r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
    code = blank(code, r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$")
    code = blank(code, r"\bsizeof\b[^;,)]*|\bcase [^:\n]*:|\b__attribute__\(\([^;{]*\)\)")
    for found in re.finditer(r"\bvmm__(?:error|cache_log)(\()", code):
        first = code.find(",", found.start(1))
        end = find_closing(code, found.start(1))
        if 0 < first < end:
            code = code[:first] + re.sub(r"[^\n]", " ", code[first:end]) + code[end:]
    outside = r"(?:\A|(?<=^\}\n)).*?(?=^\{$|\Z)"
    return blank(code, outside)


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
        end = find_closing(code, found.start(1)) + 1
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
    code_left = mutable_code(code)
    places = [*swaps(code_left), *numbers(code_left), *negations(code_left, code), *deletions(code_left)]
    made = [Mutant(path, *place, code) for place in places]
    made.sort(key=lambda mutant: (mutant.start, mutant.kind, mutant.text))
    seen = {}
    for mutant in made:
        key = mutant.key()
        mutant.number = seen[key] = seen.get(key, -1) + 1
    return made
