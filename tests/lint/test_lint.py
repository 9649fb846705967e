"""Each check of words, includes, heads and sizes finds what is planted, and nothing in plain text."""
import contextlib
import io
import os
import tempfile
import unittest

import circles
import english
import heads
import layers
import old_words
import python_imports
import sizes


class Planted(unittest.TestCase):
    def faults(self, check, files, *arguments):
        """The lines that the check prints for a tree of these files; the last line is its summary."""
        with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()) as out:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            with self.assertRaises(SystemExit) as end:
                check.main(root, *arguments)
        lines = out.getvalue().splitlines()[:-1]
        self.assertEqual(end.exception.code, 1 if lines else 0)
        return lines


class OldWords(Planted):
    def find(self, text, path="src/a.c"):
        return self.faults(old_words, {path: text}, ["src", "docs"])

    def test_finds_a_word_in_a_comment(self):
        self.assertEqual(self.find("int a;\n/* Its territory. */\n"), ["src/a.c:2: 'territory'; write: extent"])

    def test_finds_a_part_of_an_identifier(self):
        self.assertEqual(len(self.find("int heap_handouts_now;\n")), 1)

    def test_finds_a_public_name_in_a_document(self):
        self.assertEqual(len(self.find("Call `vmm_watch()`.\n", "docs/a.md")), 1)

    def test_leaves_the_words_of_today_alone(self):
        self.assertEqual(self.find("void extent_take(void); /* Oversupply, meshwork, vmm_listen(). */\n"), [])

    def test_leaves_other_folders_alone(self):
        tree = {"src/a.c": "int a;\n", "tests/a.c": "int seat;\n"}
        self.assertEqual(self.faults(old_words, tree, ["src"]), [])
        self.assertEqual(len(self.faults(old_words, tree, [])), 1)


class PythonImports(Planted):
    TREE = {"tools/a/parts/__init__.py": "from .shape import Square\n",
            "tools/a/parts/shape.py": "class Square: pass\n",
            "tools/a/sizes.py": "try:\n    import numpy as np\nexcept ImportError:\n    np = None\nHIGH, WIDE = 1, 2\n"}

    def find(self, line):
        return self.faults(python_imports, {**self.TREE, "tools/a/parts/use.py": line})

    def test_finds_a_name_that_is_not_there(self):
        line = "def f():\n    from parts.shape import Circle\n"
        self.assertEqual(self.find(line), ["tools/a/parts/use.py:2: tools/a/parts/shape.py does not define Circle"])
        self.assertEqual(len(self.find("from . import circle, shape\n")), 1)

    def test_leaves_other_imports_alone(self):
        for line in ("from sizes import HIGH, WIDE, np\n", "from parts import Square, shape\n",
                     "from .shape import Square\n", "from torch.cuda import MemPool\n", "import sizes\n"):
            self.assertEqual(self.find(line), [], line)


class Layers(Planted):
    def find(self, include, path):
        line = "#include <%s>\n" if include.startswith("cuda") else '#include "%s"\n'
        return self.faults(layers, {path: line % include})

    def test_preload_sees_public_headers_base_and_trace(self):
        for seen in ("vmmcache/vmmcache.h", "base/map.h", "trace/recorder.h", "preload/preload.h", "cuda.h"):
            self.assertEqual(self.find(seen, "src/preload/a.c"), [], seen)
        for hidden in ("cache/cache.h", "driver/driver.h", "torch/hooks.h"):
            self.assertEqual(len(self.find(hidden, "src/preload/a.c")), 1, hidden)

    def test_torch_sees_public_headers_base_and_the_trial(self):
        for seen in ("vmmcache/vmmcache.h", "base/map.h", "torch/hooks.h", "api/create_trial.h"):
            self.assertEqual(self.find(seen, "src/torch/a.c"), [], seen)
        for hidden in ("cache/cache.h", "driver/driver.h", "api/internal.h"):
            self.assertEqual(len(self.find(hidden, "src/torch/a.c")), 1, hidden)

    def test_only_the_driver_and_preload_see_cuda(self):
        self.assertEqual(len(self.find("cuda.h", "src/vm/a.c")), 1)
        self.assertEqual(self.find("cuda.h", "src/driver/cuda/a.c"), [])


class English(Planted):
    def find(self, text, path="src/a.c"):
        return self.faults(english, {path: text}, ["src"])

    def test_finds_a_riddle_in_a_comment(self):
        self.assertEqual(self.find("int a;\n/*\n * It is nobody's.\n */\n"),
                         ["src/a.c:3: 'nobody's'; plainer: name the owner, or say 'unowned'"])

    def test_finds_a_riddle_in_a_message(self):
        self.assertEqual(len(self.find('f("it was told of");\n')), 1)

    def test_finds_a_riddle_in_a_docstring(self):
        self.assertEqual(len(self.find('"""Whoever calls it,\n\nin vain."""\n', "src/a.py")), 2)

    def test_finds_a_riddle_in_a_script(self):
        self.assertEqual(len(self.find("set(a 1)\n# Nobody's list.\n", "src/CMakeLists.txt")), 1)

    def test_finds_a_riddle_in_a_document(self):
        self.assertEqual(len(self.find("Two blocks, both of which are free.\n", "src/a.md")), 1)

    def test_leaves_code_alone(self):
        self.assertEqual(self.find("int nobody, lacks; /* The owner is unknown. */\n"), [])


class Circles(Planted):
    def find(self, **files):
        allowed = {kind: {} for kind in circles.ALLOWED}
        return self.find_with(allowed, files)

    def find_with(self, allowed, files):
        real, circles.ALLOWED = circles.ALLOWED, allowed
        try:
            tree = {"src/" + path: text for path, text in files.items()}
            return self.faults(circles, tree)
        finally:
            circles.ALLOWED = real

    def test_finds_headers_that_include_each_other(self):
        lines = self.find(**{"m/a.h": '#include "m/b.h"\n', "m/b.h": '#include "m/a.h"\n'})
        self.assertIn("headers include each other: m/a.h, m/b.h", lines)

    def test_finds_a_circle_of_three_modules(self):
        lines = self.find(**{"m/a.h": "", "m/b.h": "", "m/c.h": "", "m/a.c": '#include "m/b.h"\n',
                             "m/b.c": '#include "m/c.h"\n', "m/c.c": '#include "m/a.h"\n'})
        self.assertEqual(lines, ["modules include each other: m/a, m/b, m/c"])

    def test_finds_folders_that_include_each_other(self):
        lines = self.find(**{"m/a.h": '#include "n/b.h"\n', "n/b.h": "", "n/c.h": '#include "m/d.h"\n', "m/d.h": ""})
        self.assertEqual(lines, ["folders include each other: m, n"])

    def test_leaves_a_chain_alone(self):
        self.assertEqual(self.find(**{"m/a.h": '#include "n/b.h"\n', "n/b.h": "", "m/a.c": '#include "m/a.h"\n'}), [])

    def test_finds_an_allowance_that_no_longer_applies(self):
        allowed = {"headers": {}, "modules": {("m/a", "m/b"): "because"}, "folders": {}}
        circle = {"m/a.h": "", "m/b.h": "", "m/a.c": '#include "m/b.h"\n', "m/b.c": '#include "m/a.h"\n'}
        self.assertEqual(self.find_with(allowed, circle), [])
        circle["m/b.c"] = ""
        self.assertEqual(len(self.find_with(allowed, circle)), 1)


class Heads(Planted):
    HEAD = "/*\n * A list.\n * Owns: nothing. May be called by: vm. Locks: none.\n */\n#ifndef A\n#endif\n"

    def find(self, head, **files):
        return self.faults(heads, {"src/m/a.h": head, **{"src/m/%s.c" % name: "" for name in files}})

    def test_finds_what_a_head_does_not_say(self):
        self.assertEqual(self.find(self.HEAD), [])
        for part in ("Owns: nothing. ", "May be called by: vm. ", "Locks: none."):
            self.assertEqual(len(self.find(self.HEAD.replace(part, ""))), 1, part)

    def test_finds_a_list_of_files_that_is_out_of_date(self):
        listing = self.HEAD.replace("A list.", "A list.\n *\n *   b.c  one\n *   c.c  two\n *")
        self.assertEqual(self.find(listing, b=1, c=1), [])
        self.assertEqual(self.find(listing, b=1, c=1, d=1), ["src/m/a.h: its head does not list d.c"])
        self.assertEqual(self.find(listing, b=1), ["src/m/a.h: its head lists c.c, which is missing"])


class Sizes(Planted):
    FUNCTIONS = {"src/a.c": "int f(void)\n{\n%s}\n", "src/a.py": "def f():\n%s"}

    def find(self, path, text):
        return self.faults(sizes, {path: self.FUNCTIONS[path] % text})

    def test_finds_a_long_line(self):
        for path, number in (("src/a.c", 3), ("src/a.py", 2)):
            self.assertEqual(self.find(path, "    " + "a" * 116 + "\n"), [])
            self.assertEqual(self.find(path, "    " + "a" * 117 + "\n"),
                             ["%s:%d: 121 columns, at most 120" % (path, number)])

    def test_finds_a_long_function(self):
        for path in self.FUNCTIONS:
            self.assertEqual(self.find(path, "    g()\n" * 60), [])
            self.assertEqual(len(self.find(path, "    g()\n" * 61)), 1)


if __name__ == "__main__":
    unittest.main()
