"""The structures of _layout.py are those of the headers, and the library takes them."""
import ctypes
import os
import re
import struct
import unittest
import unittest.mock

from support import HERE, run_python
from vmmcache import LibraryError, _layout, _library
from vmmcache._picture import FORMATS, Block, Event, Segment

INCLUDE = os.path.join(HERE, "..", "..", "include", "vmmcache")


def header(name):
    with open(os.path.join(INCLUDE, name), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.DOTALL)


def map_names(text, name):
    body = re.search(r"#define %s\(X\)(.*?[^\\])\n" % name, text, re.DOTALL).group(1)
    return re.findall(r"X\((\w+)", body)


def fields(text, name):
    """The names of a structure's fields, a nested vmm_pool_id as its two."""
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (name, name), text, re.DOTALL).group(1)
    names = re.findall(r"(\w+)(?:\[\w+\])?;", body)
    return [part for field in names for part in (("pool_first", "pool_second") if field == "pool" else
                                                 (field,))]


class LayoutTest(unittest.TestCase):
    def test_statistics_are_those_of_the_header(self):
        text = header("vmmcache.h")
        _library.load()
        self.assertEqual([(name, _layout.Figure) for name in map_names(text, "VMM_STAT_MAP")]
                         + [(name, _layout.u64) for name in map_names(text, "VMM_VALUE_MAP")],
                         _layout.Stats._fields_)
        self.assertIn(f"VMM_STAT_OVER_TIME = {_layout.STAT_OVER_TIME},", text)
        self.assertEqual(ctypes.sizeof(_layout.Stats), getattr(_layout.Stats, _layout.Stats._fields_[-1][0]).offset + 8)

    def test_the_offsets_of_statistics_are_those_of_the_library(self):
        for number, (name, _) in enumerate(_layout.Stats._fields_):
            found = _library.load().vmm_stat_describe(number).contents
            self.assertEqual((found.name.decode(), found.offset), (name, getattr(_layout.Stats, name).offset))

    def test_the_version_is_that_of_the_header(self):
        numbers = dict(re.findall(r"#define VMM_VERSION_(\w+) +(\d+)", header("vmmcache.h")))
        self.assertEqual(_layout.VERSION, (int(numbers["MAJOR"]), int(numbers["MINOR"])))

    def test_a_library_of_another_version_is_refused(self):
        major, minor = _layout.VERSION
        for version in ((major + 1, minor), (major, minor + 1), (major, minor * 10 + 10)):
            with unittest.mock.patch.object(_layout, "VERSION", version):
                with self.assertRaisesRegex(LibraryError, r"needs %d\.%d$" % version):
                    _library._open(_library.path())

    def test_structures_have_the_fields_of_the_headers(self):
        for name, structure, text in (
                ("vmm_config", _layout.Config, header("vmmcache.h")),
                ("vmm_trace_options", _layout.TraceOptions, header("vmmcache.h")),
                ("vmm_torch_kind_stats", _layout.KindFigures, header("torch.h")),
                ("vmm_torch_stats", _layout.TorchFigures, header("torch.h")),
                ("vmm_torch_snapshot", _layout.Snapshot, header("torch.h")),
                ("vmm_neighbour", _layout.Neighbour, header("vmmcache.h")),
                ("vmm_part", _layout.Part, header("vmmcache.h")),
                ("vmm_stat_description", _layout.StatDescription, header("vmmcache.h")),
                ("vmm_sleep_options", _layout.SleepOptions, header("vmmcache.h"))):
            with self.subTest(name):
                sized = ["struct_size"] if issubclass(structure, _layout._Sized) else []
                self.assertEqual(sized + [field[0] for field in structure._fields_], fields(text, name))

    def test_the_structure_of_a_pool_is_that_of_the_header(self):
        text = header("torch.h")
        body = re.search(r"typedef struct vmm_torch_pool \{(.*?)\n\} vmm_torch_pool;", text, re.DOTALL).group(1)
        names = re.findall(r"(\w+)(?:\[VMM_TORCH_TAG_BYTES\])?;", body)
        expected = [part for name in names for part in (("id_first", "id_second") if name == "id" else (name,))]
        self.assertEqual([field[0] for field in _layout.TorchPool._fields_], expected)
        self.assertIn(f"#define VMM_TORCH_TAG_BYTES {_layout.TAG_BYTES}\n", text)

    def test_records_of_snapshots_have_the_fields_of_the_header(self):
        for name, record in (("vmm_torch_event", Event), ("vmm_torch_block", Block), ("vmm_torch_segment", Segment)):
            layout = FORMATS[record]
            with self.subTest(name):
                self.assertEqual(list(record._fields), fields(header("torch.h"), name))
                self.assertEqual(len(record._fields),
                                 len(struct.unpack(layout, bytes(struct.calcsize(layout)))))
                self.assertEqual(struct.calcsize(layout) % 8, 0, "an array would have gaps")

    def test_the_library_refuses_structures_that_are_too_small(self):
        library = _library.load()
        figures = _layout.TorchFigures()
        figures.struct_size -= 1
        self.assertNotEqual(library.vmm_torch_stats_get(0, ctypes.byref(figures)), 0)
        figures.struct_size += 1
        self.assertEqual(library.vmm_torch_stats_get(0, ctypes.byref(figures)), 0)

    def test_the_library_takes_a_configuration_of_this_size(self):
        status, said = run_python("from vmmcache._config import configure; configure()")
        self.assertEqual(status, 0, said)
