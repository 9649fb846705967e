"""The check of the ABI finds what is changed in a planted library, and knows which changes break programs.

usage: test_abi.py CC NM READELF
"""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

import abi

TOOLS = sys.argv[1:4]
HEADER = """
#include <stddef.h>
#define VMM_API __attribute__((visibility("default")))
#define VMM_MOST 7
typedef enum vmm_kind { VMM_A = 0, VMM_B = 1 } vmm_kind;
typedef struct vmm_pair { int first; int second; } vmm_pair;
typedef struct vmm_config { size_t struct_size; vmm_kind kind; vmm_kind other; } vmm_config;
typedef struct vmm_item { size_t struct_size; int is_small; } vmm_item;
typedef int (*vmm_visitor)(void *context, const vmm_pair *pair);
VMM_API vmm_kind vmm_walk(const vmm_config *config, vmm_visitor visit);
"""
CODE = "vmm_kind vmm_walk(const vmm_config *config, vmm_visitor visit) { (void)visit; return config->kind; }\n"
EXPORTS = """extern "C" VMM_API void vmm_hook(int device, filter one)\n"""


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.paths = {name: os.path.join(cls.folder.name, name)
                     for name in ("a.h", "a.c", "libvmm.so", "a.abi", "a.cpp")}
        cls("check").check("--update")  # all tests compare with this

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, header, code, soname):
        for name, text in (("a.h", header), ("a.c", '#include "a.h"\n' + code)):
            with open(self.paths[name], "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run([TOOLS[0], "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname," + soname,
                        self.paths["a.c"], "-o", self.paths["libvmm.so"]], check=True)

    def check(self, *flags, header=HEADER, code=CODE, soname="libvmm.so.0.2", cxx=EXPORTS + "using filter = int;\n"):
        """The differences of this library from the listed one."""
        self.build(header, code, soname)
        with open(self.paths["a.cpp"], "w", encoding="utf-8") as file:
            file.write(cxx)
        with contextlib.redirect_stdout(io.StringIO()) as out, self.assertRaises(SystemExit) as end:
            abi.main(self.paths["a.abi"], self.paths["libvmm.so"], *TOOLS, os.path.dirname(self.paths["a.h"]),
                     self.paths["a.h"], self.paths["a.cpp"], *flags)
        lines = out.getvalue().splitlines()
        if not flags:
            self.assertEqual(end.exception.code, 1 if lines[:-1] else 0)
        return [line[len("a.abi: "):] for line in lines[:-1]]

    def assert_found(self, lines, advice, *expected):
        self.assertEqual(lines, ["%s: %s" % (what, advice) for what in expected])

    def changed(self, old, new):
        self.assertIn(old, HEADER)
        return self.check(header=HEADER.replace(old, new))

    def test_finds_nothing_where_nothing_changed(self):
        self.assertEqual(self.check(), [])
        self.assertEqual(self.changed("void *context, const", "void *other, const"), [])

    def test_finds_a_removed_symbol(self):
        hidden = CODE.replace("vmm_kind vmm_walk", '__attribute__((visibility("hidden"))) vmm_kind vmm_walk')
        self.assert_found(self.check(header=HEADER.replace("VMM_API vmm_kind", "vmm_kind"), code=hidden), abi.BREAKS,
                          "removed: symbol vmm_walk (unversioned)")

    def test_finds_a_removed_function(self):
        lines = self.check(header=HEADER[:HEADER.index("VMM_API vmm_kind")], code="")
        self.assert_found(lines, abi.BREAKS,
                          "removed: function vmm_walk (vmm_kind (const vmm_config *, vmm_visitor))",
                          "removed: symbol vmm_walk (unversioned)")

    def test_finds_another_prototype(self):
        lines = self.check(header=HEADER.replace("vmm_walk(const", "vmm_walk(int a, const"),
                           code=CODE.replace("vmm_walk(const", "vmm_walk(int a, const"))
        self.assert_found(lines, abi.BREAKS, "changed: function vmm_walk: was vmm_kind (const vmm_config *, "
                          "vmm_visitor), is vmm_kind (int, const vmm_config *, vmm_visitor)")

    def test_finds_a_moved_field(self):
        lines = self.changed("vmm_kind kind; vmm_kind other;", "vmm_kind other; vmm_kind kind;")
        self.assert_found(lines, abi.BREAKS,
                          "changed: struct vmm_config.kind: was offset 8, 4 bytes, vmm_kind, "
                          "is offset 12, 4 bytes, vmm_kind",
                          "changed: struct vmm_config.other: was offset 12, 4 bytes, vmm_kind, "
                          "is offset 8, 4 bytes, vmm_kind")

    def test_finds_another_type_of_the_same_size(self):
        self.assert_found(self.changed("int second;", "unsigned second;"), abi.BREAKS,
                          "changed: struct vmm_pair.second: was offset 4, 4 bytes, int, "
                          "is offset 4, 4 bytes, unsigned")

    def test_finds_another_size(self):
        self.assert_found(self.changed("} vmm_pair;", "} __attribute__((aligned(16))) vmm_pair;"), abi.BREAKS,
                          "changed: struct vmm_pair: was 8 bytes, is 16 bytes")

    def test_finds_a_changed_enumeration(self):
        self.assert_found(self.changed("VMM_B = 1", "VMM_B = 2"), abi.BREAKS,
                          "changed: enum vmm_kind VMM_B: was 1, is 2")

    def test_finds_a_changed_constant(self):
        self.assert_found(self.changed("VMM_MOST 7", "VMM_MOST 8"), abi.BREAKS,
                          "changed: constant VMM_MOST: was 7, is 8")

    def test_finds_a_changed_callback(self):
        self.assert_found(self.changed("(void *context, const", "(long context, const"), abi.BREAKS,
                          "changed: type vmm_visitor: was int (*)(void *, const vmm_pair *), "
                          "is int (*)(long, const vmm_pair *)")

    def test_finds_a_changed_alias_of_cxx(self):
        self.assert_found(self.check(cxx=EXPORTS + "using filter = long;\n"), abi.BREAKS,
                          "changed: type filter: was int, is long")

    def test_wants_an_added_function_listed(self):
        more = "VMM_API int vmm_more(void);\n"
        lines = self.check(header=HEADER + more, code=CODE + "int vmm_more(void) { return 1; }\n")
        self.assert_found(lines, abi.COMPATIBLE, "added: function vmm_more (int (void))",
                          "added: symbol vmm_more (unversioned)")

    def test_wants_an_added_value_listed(self):
        self.assert_found(self.changed("VMM_B = 1", "VMM_B = 1, VMM_C"), abi.COMPATIBLE,
                          "added: enum vmm_kind VMM_C (2)")

    def test_allows_a_field_at_the_end_of_a_structure_with_struct_size(self):
        self.assert_found(self.changed("vmm_kind other;", "vmm_kind other; int more;"), abi.COMPATIBLE,
                          "added: struct vmm_config.more (offset 16, 4 bytes, int)")

    def test_refuses_a_field_where_an_old_program_has_padding(self):
        self.assert_found(self.changed("int is_small;", "int is_small; int more;"), abi.BREAKS,
                          "added: struct vmm_item.more (offset 12, 4 bytes, int)")

    def test_refuses_a_field_of_a_structure_without_struct_size(self):
        self.assert_found(self.changed("int second;", "int second; int third;"), abi.BREAKS,
                          "added: struct vmm_pair.third (offset 8, 4 bytes, int)")

    def test_allows_all_with_a_new_soname(self):
        lines = self.check(header=HEADER.replace("VMM_B = 1", "VMM_B = 2"), soname="libvmm.so.0.3")
        self.assert_found(lines, abi.NEW_SONAME, "changed: enum vmm_kind VMM_B: was 1, is 2",
                          "changed: soname: was libvmm.so.0.2, is libvmm.so.0.3")

    def test_refuses_what_it_cannot_read(self):
        with self.assertRaisesRegex(SystemExit, "cannot read 'int bits : 3'"):
            self.build(HEADER.replace("int first;", "int bits : 3;"), CODE, "libvmm.so.0.2")
            abi.header_facts(TOOLS[0], os.path.dirname(self.paths["a.h"]), self.paths["a.h"])


unittest.main(argv=sys.argv[:1])
