"""What the report reads: traces with their notes, snapshots, and input that is none of these."""
import gzip
import io
import json
import os
import pickle
import random
import re
import subprocess
import sys
import unittest
from contextlib import redirect_stderr
from unittest import mock

import scenes
from support import MIB, NOTES, FileTest
from vmmcache import report, report_pack
from vmmcache.report_recording import Mappings, ReportError, Spans

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class TraceTest(FileTest):
    def test_blocks_are_live_from_their_allocation_to_their_free(self):
        found = self.read("# two\n+ 7 100 0\n+ 8 200 3\n- 7\n\n+ 7 300 3\n")
        self.assertEqual((list(found.start), list(found.life)), ([1, 2, 4], [2, 0, 0]))
        self.assertEqual((list(found.bytes), list(found.stream)), ([100, 200, 300], [0, 1, 1]))
        self.assertEqual((found.operations, found.streams.texts), (4, ["default stream", "stream 3"]))

    def test_gzip_and_windows_lines_read_alike(self):
        plain = self.read("+ 1 100 0\n- 1\n")
        for data in (gzip.compress(b"+ 1 100 0\n- 1\n"), b"+ 1 100 0\r\n- 1\r\n", b"+ 1 100 0\n- 1",
                     b"+ 01 100 0 \n- 1\n"):
            found = self.read(data)
            self.assertEqual((found.start, found.life, found.operations), (plain.start, plain.life, plain.operations),
                             data)

    def test_a_packed_recording_that_was_cut_is_read_up_to_its_last_whole_line(self):
        head = gzip.compress(b"# recorded by libvmmcache 1\n+ 1000 100 0\n")
        data = head + gzip.compress(b"".join(b"+ %d 100 0\n" % i for i in range(999)))
        for cut in (len(head) + 2, len(head) + 11, len(data) // 2, len(data) - 8, len(data) - 1):
            said = io.StringIO()
            with redirect_stderr(said):
                found = self.read(data[:cut])
            self.assertRegex(said.getvalue(), "^vmmcache-report: .*some.trace: the file was cut: shown up to .*\n$")
            self.assertEqual(found.notes, [(found.operations, "the recording ends here: the file was cut")])
            self.assertEqual(found.operations, len(found.bytes))
            self.assertEqual(set(found.bytes), {100})
        self.assertEqual(found.operations, 1000)
        whole = self.read(data)
        self.assertEqual((whole.operations, whole.notes), (1000, []))

    def test_notes_of_windows_read_alike(self):
        found, same = self.read(NOTES), self.read(NOTES.replace("\n", "\r\n"))
        self.assertEqual((found.times, found.address, found.frames.texts, found.labels.texts),
                         (same.times, same.address, same.frames.texts, same.labels.texts))

    def test_the_lines_of_a_recording_are_its_trace(self):
        lines = ["+ 0 100 0\n", "+ 1 200 0\n", "- 0\n", "+ 2 300 0\n", "- 2\n"]
        found = list(self.read("".join(lines)).lines())
        self.assertEqual([line.decode() for line, _ in found], lines)
        self.assertEqual([state for _, state in found], [1, 2, 3, 4, 5])

    def test_notes_add_stacks_addresses_times_names_and_reserved_memory(self):
        found = self.read(NOTES)
        self.assertEqual(list(found.times), [1000, 1000, 1500, 1500, 1700, 1700])
        self.assertEqual((list(found.start), list(found.held), list(found.life)), ([2], [1], [2]))
        self.assertEqual((list(found.frame), found.frames.texts), ([2], ["", "main (a.py:1)", "step (a.py:9)"]))
        self.assertEqual((list(found.address), found.streams.texts, found.chunk_bytes),
                         ([4194304], ["copies"], 2097152))
        self.assertEqual([found.pools.texts[pool] for pool in found.pool], ["graphs"])
        self.assertEqual([found.labels.texts[label] for label in found.label], ["a batch"])
        self.assertEqual((list(found.spans.start), list(found.spans.life)), ([1], [4]))
        self.assertEqual(found.notes, [(4, "step 2 begins")])
        mappings = found.mappings
        self.assertEqual(sorted(zip(mappings.address, mappings.bytes, mappings.chunk, mappings.start, mappings.life)),
                         [(4194304, 2097152, 3, 0, 0), (8388608, 0, 3, 0, 4)])

    def test_notes_of_blocks_with_the_largest_ids(self):
        most = (1 << 64) - 1
        found = self.read(f"+ {most} 1 0\n#@ name {most} last\n#@ wait {most}\n- {most}\n")
        self.assertEqual((list(found.held), found.labels.texts), ([1], ["", "last"]))

    def test_frames_of_the_librarys_hooks_are_left_out(self):
        found = self.read("#@ frame 1 0 main+0x4 (app+0x10)\n#@ frame 2 1 shim-2.11.0_cu130-99.so+0xdc9d\n"
                          "#@ frame 3 2 vmm_torch_alloc+0x8 (libvmmcache_torch.so.0.2+0x73ab8)\n"
                          "#@ frame 4 1 f+0x1 (libvmmcache_torch_user.so+0x3)\n"
                          "#@ next frame=3\n+ 1 10 0\n#@ next frame=4\n+ 2 10 0\n")
        self.assertEqual(([found.frames.texts[frame] for frame in found.frame]),
                         ["main+0x4 (app+0x10)", "f+0x1 (libvmmcache_torch_user.so+0x3)"])

    def test_details_of_a_few_blocks_stay_theirs(self):
        found = self.read("+ 1 10 0\n#@ frame 1 0 f\n#@ next frame=1\n+ 2 10 0\n+ 3 10 0\n#@ name 3 x\n+ 4 10 0\n")
        self.assertEqual((list(found.frame), list(found.label)), ([0, 1, 0, 0], [0, 0, 1, 0]))


    def test_memory_that_changes_its_address_stays_reserved(self):
        found = self.read("#@ next time=100\n#@ map 4096 4096 0\n#@ next time=20000\n#@ map 16384 4096 0\n+ 1 10 0\n"
                          "#@ next time=60000\n#@ unmap 4096 4096\n#@ next time=64000\n#@ unmap 16384 4096\n"
                          "#@ map 65536 8192 0\n- 1\n")
        reserved = [sum(size for start, life, size in zip(found.spans.start, found.spans.life, found.spans.bytes)
                        if start <= state and (not life or start + life > state))
                    for state in range(found.operations + 1)]
        self.assertEqual(reserved, [0, 4096, 8192, 8192, 8192, 8192])

    def test_memory_that_one_operation_reserves_and_returns_is_in_no_state(self):
        found = self.read("#@ next time=100\n#@ map 4096 8192 0\n#@ unmap 4096 4096\n#@ map 65536 4096 0\n"
                          "#@ unmap 65536 4096\n#@ map 65536 4096 0\n+ 1 10 0\n- 1\n")
        self.assertEqual(sorted(zip(found.spans.address, found.spans.bytes, found.spans.start, found.spans.life)),
                         [(8192, 4096, 1, 0), (65536, 4096, 1, 0)])

    def test_the_example_of_the_format_is_read_by_the_report_and_by_fragtest(self):
        with open(os.path.join(ROOT, "docs", "trace-format.md"), encoding="utf-8") as file:
            example = re.search(r"^```\n(#@ .*?)^```$", file.read(), re.DOTALL | re.M).group(1)
        found = self.read(example)
        self.assertEqual((found.operations, list(found.times)), (4, [1000, 1000, 1002, 1002, 1180]))
        self.assertEqual((found.frames.texts[found.frame[0]], found.labels.texts[found.label[0]]),
                         ("forward (train.py:41)", "activations"))
        subprocess.run([os.environ["VMM_FRAGTEST"], "--trace", self.path("some.trace"), "--driver", "sim", "--quiet"],
                       stdout=subprocess.DEVNULL, check=True)


class SnapshotTest(FileTest):
    def live_at(self, found, state):
        return sum(size for size, start, life in zip(found.bytes, found.start, found.life)
                   if start <= state and (not life or start + life > state))

    def test_history_and_picture_agree(self):
        snapshot = scenes.training()
        for name, data in (("some.pickle", pickle.dumps(snapshot, 4)), ("some.json", json.dumps(snapshot)),
                           ("some.json.gz", gzip.compress(json.dumps(snapshot).encode()))):
            found = self.read(data, name)
            segment = snapshot["segments"][0]
            self.assertEqual(self.live_at(found, found.operations), segment["active_size"], name)
            self.assertEqual(sum(size for size, life in zip(found.spans.bytes, found.spans.life) if not life),
                             segment["total_size"])
            self.assertEqual(len(found.notes), 1)
            self.assertIn("512.00 MiB requested", found.notes[0][1])

    def test_what_the_history_does_not_mention_was_there_before(self):
        snapshot = scenes.training()
        whole = self.read(pickle.dumps(snapshot, 4))
        cut = len(snapshot["device_traces"][0]) // 2
        del snapshot["device_traces"][0][:cut]
        found = self.read(pickle.dumps(snapshot, 4))
        for state in (0, 1, found.operations // 2, found.operations):
            self.assertEqual(self.live_at(found, state),
                             self.live_at(whole, whole.operations - found.operations + state), state)

    def test_without_history_it_is_one_moment(self):
        snapshot = scenes.training()
        snapshot["device_traces"] = [[]]
        found = self.read(pickle.dumps(snapshot, 4))
        self.assertEqual((found.operations, self.live_at(found, 0)), (0, snapshot["segments"][0]["active_size"]))
        self.assertIn("train_step (train.py:64)", found.frames.texts)

    def test_the_device_with_most_memory_is_shown(self):
        snapshot = scenes.training()
        other = {**snapshot["segments"][0], "device": 1, "total_size": 2 * MIB, "blocks": []}
        snapshot["segments"].append(other)
        self.assertEqual(self.read(pickle.dumps(snapshot, 4)).device, 0)
        self.assertEqual(self.read(pickle.dumps(snapshot, 4), device=1).device, 1)
        with self.assertRaisesRegex(ReportError, "device 2 has neither memory nor events"):
            self.read(pickle.dumps(snapshot, 4), device=2)


class SpansTest(unittest.TestCase):
    def mapped(self, spans, state):
        return sorted((low, low + size) for low, size, start, life in
                      zip(spans.address, spans.bytes, spans.start, spans.life)
                      if start <= state and (not life or start + life > state))

    def test_a_part_that_is_unmapped_leaves_the_rest(self):
        spans = Spans()
        spans.map(1, 100, 50, 0, 0)
        spans.unmap(2, 110, 20, 0, 0)
        self.assertEqual(self.mapped(spans, 1), [(100, 110), (110, 130), (130, 150)])
        self.assertEqual(self.mapped(spans, 2), [(100, 110), (130, 150)])

    def test_what_is_unmapped_and_unknown_was_mapped_before(self):
        spans = Spans()
        spans.map(1, 100, 50, 0, 0)
        spans.unmap(2, 80, 100, 0, 0)
        self.assertEqual(self.mapped(spans, 0), [(80, 100), (150, 180)])
        self.assertEqual(self.mapped(spans, 2), [])


class MappingsTest(unittest.TestCase):
    def rows(self, mappings):
        mappings.finish()
        return sorted(zip(mappings.start, mappings.life, mappings.chunk, mappings.address, mappings.bytes))

    def test_a_mapping_that_ends_in_the_state_of_its_begin_is_in_none(self):
        mappings = Mappings()
        mappings.begin(1, 7, 100, 50)
        mappings.end(1, 100)
        mappings.begin(1, 8, 100, 20)
        mappings.end(3, 100)
        self.assertEqual(self.rows(mappings), [(1, 2, 8, 100, 20)])

    def test_a_mapping_ends_where_another_begins(self):
        mappings = Mappings()
        mappings.begin(1, 7, 100, 50)
        mappings.begin(2, 9, 100, 0)
        mappings.end(2, 400)  # nothing is there
        self.assertEqual(self.rows(mappings), [(1, 1, 7, 100, 50), (2, 0, 9, 100, 0)])


class RefusalTest(FileTest):
    """One line on stderr that says what and where, exit status 2, and no page."""

    def test_no_output_replaces_the_input(self):
        path = self.write(b"+ 1 100 0\n- 1\n", "run.trace")
        os.symlink(path, self.path("link.html"))
        for option, name in (("-o", path), ("--perfetto", path), ("-o", self.path("link.html")), ("--trace", path)):
            status, said = self.run_report(path, option, name)
            self.assertEqual(said, f"vmmcache-report: {name}: it is the input; {option} would replace it\n")
            self.assertEqual(status, 2)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"+ 1 100 0\n- 1\n")

    def test_no_output_replaces_another(self):
        path = self.write(b"+ 1 100 0\n- 1\n", "run.trace")
        page = self.path("page.html")  # which the first -o names
        for name in (page, os.path.join(self.folder, ".", "page.html")):
            self.assertEqual(self.run_report(path, "--perfetto", name),
                             (2, f"vmmcache-report: {name}: -o and --perfetto are the same file\n"))
            self.assertFalse(os.path.exists(page))
        os.link(self.write(b"before", "page.html"), self.path("other"))
        self.assertEqual(self.run_report(path, "--trace", self.path("other")),
                         (2, f"vmmcache-report: {self.path('other')}: -o and --trace are the same file\n"))
        with open(page, "rb") as file:
            self.assertEqual(file.read(), b"before")
        self.assertEqual(self.run_report(path, "-o", os.devnull, "--perfetto", os.devnull), (0, ""))

    def refuses(self, data, *expected, name="some.trace"):
        path = self.write(data, name)
        status, said = self.run_report(path)
        self.assertEqual(status, 2, said)
        self.assertEqual(said.count("\n"), 1, said)
        for text in (path, *expected):
            self.assertIn(text, said)
        self.assertFalse(os.path.exists(self.path("page.html")))

    def test_traces(self):
        for data, *expected in (
                ("", ":1: no operations"), ("# nothing\n", "no operations"), ("hello\n", ":1: ", "a line starts with"),
                ("+ 1 100 0\n+ 1 100 0\n", ":2: id 1 is allocated while it is live"),
                ("+ 1 100 0\n- 2\n", ":2: id 2 is freed but not live"), ("+ 1 100\n", ":1: ", "not of the form"),
                ("+ 1 0 0\n", ":1: ", "0 bytes"), ("+ 1 100 0\n+ 2 100 0 0\n", ":2: "),
                ("+ 1 100 0\n+ 2 -1 0\n", ":2: "),
                ("+ 1 100 4096\n", ":1: stream 4096"), (f"+ 1 {1 << 47} 0\n", ":1: "),
                (b"+ 1 100 0\n- \0\n", ":2: a zero byte"),
                (b"# a \0 in a comment\n+ 1 100 0\n", ":1: a zero byte"),
                (b"#@ next a\0=1\n+ 1 100 0\n", ":1: a zero byte"),
                ("+ 1 100 0\n-  1\n", ":2: "), ("#@ frame 2 1 f\n", ":1: wrong fields in the note 'frame'"),
                ("#@ next frame=3\n+ 1 1 0\n", ":2: frame 3 is not known"), ("#@ next time\n", ":1: "),
                ("#@ wait 5\n", ":1: "),
                ("#@ map 4096 8192 0\n#@ map 8192 1 0\n", ":2: 1 bytes at 8192 meet memory that is reserved already"),
                ("#@ home 1 4096 8192\n#@ home 2 8192 4096\n", ":2: chunk 2 at 8192 meets chunk 1 at 4096"),
                ("#@ home 1 8192 4096\n#@ home 2 4096 8192\n", ":2: chunk 2 at 4096 meets chunk 1 at 8192"),
                ("#@ home 1 4096 8192\n#@ place 1 8192\n", ":2: chunk 1 at 8192 meets chunk 1 at 4096"),
                ("#@ place 7 8192\n", ":1: chunk 7 has no home"),
                ("#@ home 1 4096 1\n#@ place 1 9000\n#@ gone 4096\n#@ home 1 4096 2\n",
                 ":4: chunk 1 is mapped with 1 bytes, not 2"),
                ("#@ map 1 x 0\n", ":1: "), ("#@ name 3 x\n", ":1: "), ("#@ frame 0 0 f\n", ":1: "),
                (f"+ {1 << 64} 1 0\n", ":1: id 18446744073709551616; 0 to 2^64 - 1 can be"),
                *((line % ("9" * 5000), ":1: ") for line in ("+ %s 1 0\n", "+ 1 %s 0\n", "+ 1 1 %s\n", "- %s\n"))):
            with self.subTest(data[:80]):
                self.refuses(data, *expected)

    def test_lines_that_are_too_long(self):
        """As in fragtest; at once, so that a file without ends of lines takes no time."""
        whole = "# " + "x" * 253
        self.assertEqual(self.read(f"{whole}\n+ 1 100 0\n").operations, 1)
        why = "a line of more than 255 bytes"
        for data, line in ((f"{whole}x\n+ 1 100 0\n", 1), (f"+ 1 100 0\n{whole}\n{whole}x\n- 1\n", 3),
                           (f"+ 1 100 0\n{whole}x", 2), (f"+ 1 100 0\n{whole}\r\n", 2),
                           (json.dumps([{"addr": 1}] * (1 << 20)), 1), (gzip.compress(bytes(1 << 27)), 1)):
            with self.subTest(len(data)):
                self.refuses(data, f":{line}: {why}")
        self.assertEqual(self.read(f"+ 1 100 0\n{whole}").operations, 1)

    def test_damaged_gzip(self):
        data = gzip.compress(b"".join(b"+ %d 100 0\n" % i for i in range(9999)))
        self.refuses(data[:len(data) // 2], "the gzip data ends too early")
        self.refuses(data[:100] + b"xxxx" + data[104:], "damaged gzip data")
        self.refuses(data[:5], "gzip data")

    def with_event(self, event):
        return json.dumps({"segments": [], "device_traces": [[event]]})

    def test_snapshots(self):
        snapshot = scenes.training()
        whole = pickle.dumps(snapshot, 4)
        for data, *expected in (
                ("{", "not JSON"), ('{"segments": ' + "[" * 99999, "not JSON"), ("{}", "no segments"),
                ('{"segments": 3}', "segments"), ('{"segments": []}', "device 0"),
                ('{"segments": [{"device": 0}]}', "segments: no total_size"),
                (whole[:-40], "not a snapshot"), (pickle.dumps([1], 4), "no segments"),
                (pickle.dumps(os.getcwd, 4), "which no snapshot needs"),
                (self.with_event({"size": 3}), "device 0, event 0: no action"),
                (self.with_event({"action": "alloc", "addr": -1, "size": 3}), "device 0, event 0: "),
                (self.with_event({"action": "alloc", "addr": 1, "size": 1 << 50}), "device 0, event 0: size is"),
                (json.dumps({"segments": [{**snapshot["segments"][0], "blocks": [{}]}]}), "segment 0: no state")):
            with self.subTest(data[:60]):
                self.refuses(data, *expected, name="some.pickle")

    def test_damage_of_any_kind_is_refused_or_read(self):
        """Nothing but a ReportError, and every recording that is read can be written."""
        draw = random.Random(5)
        snapshot = scenes.training()
        del snapshot["device_traces"][0][60:]
        whole = [NOTES.encode(), gzip.compress(NOTES.encode()), json.dumps(snapshot).encode(),
                 pickle.dumps(snapshot, 4)]
        parts = b'0,-1,99999999999999999999,{,[],null,"x",\0,#@ ,=, ,\n,1e400,true'.split(b",")
        for number in range(800):
            data = bytearray(draw.choice(whole))
            for _ in range(draw.randrange(1, 6)):
                at = draw.randrange(len(data))
                data[at:at + draw.randrange(9)] = draw.choice([*parts, bytes([draw.randrange(256)])])
            try:
                recording = self.read(bytes(data))
            except ReportError:
                continue
            with self.subTest(number):
                report_pack.page(recording, None, "")

    def test_files_that_cannot_be_read_or_written(self):
        status, said = self.run_report(self.path("none.trace"))
        self.assertEqual((status, said.count("\n")), (2, 1))
        self.assertIn("none.trace: No such file", said)
        status, said = self.run_report(self.folder)
        self.assertEqual((status, said.count("\n")), (2, 1))
        path = self.write("+ 1 100 0\n")
        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(report.main([path, "-o", self.path("no/page.html")]), 2)
        self.assertIn(f"{self.path('no/page.html')}: No such file", said.getvalue())
        for option in ("-o", "--perfetto"):
            with redirect_stderr(io.StringIO()) as said:
                self.assertEqual(report.main([path, option, "/dev/full"]), 2)
            self.assertEqual(said.getvalue(), "vmmcache-report: /dev/full: No space left on device\n")

    def test_digits_that_are_no_pid(self):
        for digits, why in (("9" * 12, "no process has the pid 999999999999"),
                            ("9" * 5000, "99999999999999999999... is neither a file nor a pid")):
            self.assertEqual(self.run_report(digits), (2, f"vmmcache-report: {why}\n"))

    def test_a_name_that_is_no_text(self):
        path = self.write("+ 1 100 0\n", os.fsdecode(b"odd\xff.trace"))
        self.assertEqual(self.run_report(path, "--perfetto", self.path("run.json")), (0, ""))
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.assertIn("<title>odd\ufffd", file.read())

    def test_an_interruption(self):
        path = self.write("+ 1 100 0\n")
        with mock.patch.object(report_pack, "page", side_effect=KeyboardInterrupt):
            self.assertEqual(self.run_report(path), (130, "vmmcache-report: interrupted\n"))
        self.assertFalse(os.path.exists(self.path("page.html")))

    def test_a_wrong_fragtest(self):
        path = self.write("+ 1 100 0\n")
        refuses = self.write("#!/bin/sh\necho first >&2\necho this is why >&2\nexit 2\n", "refuses")
        os.chmod(refuses, 0o755)
        for program, expected in ((self.path("none"), "No such file"), ("/bin/false", "no results"),
                                  (refuses, "this is why")):
            status, said = self.run_report(path, "--fragtest", program)
            self.assertEqual((status, said.count("\n")), (2, 1), said)
            self.assertIn(expected, said)
            self.assertFalse(os.path.exists(self.path("page.html")))

    def test_as_a_program(self):
        path = self.write("hello\n")
        done = subprocess.run([sys.executable, "-B", "-m", "vmmcache.report", path, "-o", self.path("page.html")],
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, f'vmmcache-report: {path}:1: a line starts with "+ ", "- " or "#"\n')


if __name__ == "__main__":
    unittest.main()
