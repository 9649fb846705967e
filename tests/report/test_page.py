"""The page in a real browser: it draws, zooms, filters, moves, and says the same as the recording."""
import json
import os
import random
import re
import subprocess
import tempfile
import unittest

import browser
import pictures
import scenes
from vmmcache import report

MOST_DIFFERENCE = 0.003  # share of points: another version of the browser
MOST_DIFFERENCE_WITH_TEXT = 0.25  # other fonts, which break lines at other places
TRACES = os.path.join(pictures.ROOT, "tools", "fragtest", "traces")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text):
    """The bytes of '1.5 MiB'."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


class PageTest(unittest.TestCase):
    """One browser and one folder of pages for all tests; each test loads its page anew."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.training = pictures.write_page(cls.folder)
        cls.gnn = cls.write("gnn", os.path.join(TRACES, "gnn.trace.gz"))
        cls.chromium = browser.Browser().__enter__()
        cls.addClassCleanup(cls.chromium.__exit__)

    @classmethod
    def write(cls, name, source, *more):
        page = os.path.join(cls.folder, name + ".html")
        if report.main([source, "-o", page, *more]) != 0:
            raise AssertionError("no page was written")
        return page

    @classmethod
    def write_trace(cls, name, lines):
        path = os.path.join(cls.folder, name + ".trace")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return cls.write(name, path)

    def setUp(self):
        self.chromium.complaints.clear()
        self.chromium.resize(1280, 1000)
        self.addCleanup(lambda: self.assertEqual(self.chromium.complaints, []))

    def open(self, page):
        self.chromium.open(page)

    def text(self, selector):
        return self.chromium.run("document.querySelector(%r)?.textContent" % selector)

    def count(self, selector):
        return self.chromium.run("document.querySelectorAll(%r).length" % selector)

    def shown(self):
        """The part of the recording that the chart shows: (start, width) in percent."""
        style = self.chromium.run("document.querySelector('.window').getAttribute('style')")
        return tuple(float(part) for part in re.findall(r"([\d.]+)%", style))

    def moment(self):
        return int(self.chromium.run("document.getElementById('moment').value"))

    def go(self, state):
        self.chromium.run("(() => { const input = document.getElementById('moment'); input.value = %d; "
                          "input.dispatchEvent(new Event('input')); input.blur(); })()" % state)
        self.chromium.settle()

    def choose(self, selector, value):
        """Sets a list or a slider as its reader would."""
        self.chromium.run("(() => { const found = document.querySelector(%r); found.value = %r; "
                          "(found.onchange ?? found.oninput)(); })()" % (selector, value))
        self.chromium.settle()

    def plot(self):
        left, top, width, height = self.chromium.box(".plot .u-over")
        return left, top + height / 2, width

    def colours(self, selector):
        """How many colours a canvas has."""
        return self.chromium.run(
            "(() => { const canvas = document.querySelector(%r); const data = new Uint32Array(canvas.getContext('2d')"
            ".getImageData(0, 0, canvas.width, canvas.height).data.buffer); return new Set(data).size; })()" % selector)


class DrawTest(PageTest):
    def test_every_part_is_drawn(self):
        self.open(self.training)
        for canvas in (".plot canvas", ".strip canvas", ".map canvas"):
            self.assertGreater(self.colours(canvas), 4, canvas)
        self.assertEqual(self.text("h1"), "training")
        self.assertGreater(self.count(".frame"), 5)
        self.assertGreater(self.count(".blocks tbody tr"), 20)
        self.assertRegex(self.text(".pins"), r"MiB pinned in \d+ chunks? by \d+ blocks? of .* from \w+ \(train.py")
        # where the chunks of a recording begin is unknown, so nothing is promised of a trim
        self.assertRegex(self.text(".words"),
                         r"parts of 2 MiB without a block: a trim returns those whose whole chunk has")
        self.assertRegex(self.text(".words"), r"At least [\d.]+ MiB of free memory lie beside blocks")
        self.assertEqual(self.count(".note[title^='out of memory: 512.00 MiB requested']"), 1)

    def test_a_trace_without_stacks_and_addresses_is_drawn(self):
        self.open(self.gnn)
        self.assertIn("no addresses", self.text(".map p"))
        self.assertIn("stream", self.text(".flame .frame:nth-child(2)"))
        self.assertIn("9.42 GiB", self.text(".figures"))

    def test_each_moment_says_what_the_recording_says(self):
        self.open(self.gnn)
        found = report.read(os.path.join(TRACES, "gnn.trace.gz"))
        draw = random.Random(3)
        for state in [0, 1, found.operations, *(draw.randrange(found.operations) for _ in range(12))]:
            live = [size for size, start, life in zip(found.bytes, found.start, found.life)
                    if start <= state and (not life or start + life > state)]
            self.go(state)
            said = re.match(r"([\d.]+ \w+) live in ([\d\u202f]+) block", self.text(".summary"))
            self.assertEqual(int(said.group(2).replace("\u202f", "")), len(live), state)
            self.assertAlmostEqual(size(said.group(1)), sum(live), delta=0.006 * sum(live), msg=str(state))

    def test_parts_without_number_cost_nothing(self):
        """The page does not make them one by one."""
        for name, lines, *expected in (
                ("bytes", ("#@ chunk 1", "#@ map 4194304 400194304 0", "#@ next address=4194304", "+ 1 704 0"),
                 "in 400\u202f193\u202f600 parts of 1 B", "0 B of free memory lie beside"),
                ("terabytes", ("#@ chunk 2097152", f"#@ map 1048576 {1 << 46} 0", f"#@ next address={3 << 20}",
                               f"+ 1 {(1 << 45) + 4096} 0"),
                 "lie in 16\u202f777\u202f214 parts of 2 MiB", "2 MiB of free memory lie beside",
                 "are free parts of 2 chunks")):
            with self.subTest(name):
                self.open(self.write_trace(name, lines))
                for text in expected:
                    self.assertIn(text, self.text(".words"))

    def test_hostile_texts_stay_texts(self):
        hostile = "</script><img src=x onerror=alert(1)>@@DATA@@"
        snapshot = scenes.training()
        for event in snapshot["device_traces"][0]:
            for frame in event["frames"]:
                frame["name"] = hostile
        self.open(pictures.write_page(self.folder, snapshot, "<b>&amp;"))
        self.assertEqual(self.text("h1"), "<b>&amp;")
        self.assertEqual(self.count("img"), 0)
        self.assertIn(hostile, self.text(".flame .rows"))

    def test_a_damaged_page_says_so(self):
        with open(self.gnn, encoding="utf-8") as file:
            text = file.read()
        page = os.path.join(self.folder, "damaged.html")
        with open(page, "w", encoding="utf-8") as file:
            file.write(re.sub(r'(id="data">.{2000}).*?(</script>)', r"\1\2", text, flags=re.DOTALL))
        self.open(page)
        self.assertRegex(self.text(".fatal"), "This page cannot be shown: ")
        self.assertNotEqual(self.chromium.complaints, [])
        self.chromium.complaints.clear()

    def test_failures_are_marked_after_many_notes(self):
        lines = [line for i in range(300) for line in (f"+ {i} 1000 0", f"#@ note step {i}")]
        self.open(self.write_trace("notes", lines + ["#@ note alloc: needed 1 GiB"]))
        failed, = self.chromium.run("[...document.querySelectorAll('.note.failed')].map(note => note.title)")
        self.assertRegex(failed, r"^alloc: needed 1 GiB\nand \d other marks?$")
        marks = self.count(".note")
        self.assertIn(marks, range(50, 90))  # those that would cover each other are one
        self.assertEqual(self.text(".note"), "")
        self.chromium.click(".note.failed")
        self.assertEqual(self.moment(), 300)

    def test_nothing_is_wider_than_the_window(self):
        long = self.write_trace("long", ["#@ stream 1 " + "a stream " * 20, "+ 1 1000 0", "+ 2 1000 1"])
        for page in (self.training, self.gnn, long):
            for width in (400, 480, 800, 1280, 1600):
                self.chromium.resize(width, 900)
                self.open(page)
                self.assertLessEqual(self.chromium.run("document.documentElement.scrollWidth"), width)


class ChartTest(PageTest):
    def setUp(self):
        super().setUp()
        self.open(self.gnn)
        self.assertEqual(self.shown(), (0, 100))

    def test_the_wheel_zooms_around_the_pointer(self):
        left, y, width = self.plot()
        before = self.chromium.screenshot()
        self.chromium.mouse("mouseWheel", left + width / 4, y, deltaX=0, deltaY=-600)
        self.chromium.settle()
        start, part = self.shown()
        self.assertLess(part, 50)
        self.assertAlmostEqual((25 - start) / part, 0.25, delta=0.02)
        after = self.chromium.screenshot()
        self.assertGreater(pictures.difference(self.chromium, before, after), 0.003)

    def test_drag_pans_and_shift_drag_zooms(self):
        left, y, width = self.plot()
        self.chromium.drag((left + width * 0.4, y), (left + width * 0.6, y), shift=True)
        start, part = self.shown()
        self.assertAlmostEqual(start, 40, delta=1)
        self.assertAlmostEqual(part, 20, delta=1)
        self.chromium.drag((left + width * 0.2, y), (left + width * 0.7, y))
        self.assertAlmostEqual(self.shown()[0], start - part / 2, delta=1)
        self.assertAlmostEqual(self.shown()[1], part, delta=0.1)

    def test_the_strip_moves_the_part(self):
        self.chromium.click("button[aria-label='Zoom in']")
        self.chromium.click("button[aria-label='Zoom in']")
        left, top, width, height = self.chromium.box(".strip .u-over")
        self.chromium.click_at(left + width * 0.8, top + height / 2)
        start, part = self.shown()
        self.assertAlmostEqual(part, 25, delta=0.5)
        self.assertAlmostEqual(start + part / 2, 80, delta=1)

    def test_keys(self):
        self.chromium.run("document.querySelector('.chart').focus()")
        for key, start, part in (("+", 18.75, 62.5), ("ArrowRight", 25, 62.5), ("Home", 0, 62.5), ("End", 37.5, 62.5),
                                 ("-", 0, 100)):
            self.chromium.press(key)
            self.assertAlmostEqual(self.shown()[0], start, delta=0.1, msg=key)
            self.assertAlmostEqual(self.shown()[1], part, delta=0.1, msg=key)
        peak = self.moment()
        self.chromium.press(".")
        self.assertEqual(self.moment(), peak + 1)
        self.chromium.press(",")
        self.chromium.press(",")
        self.assertEqual(self.moment(), peak - 1)
        self.chromium.press("p")
        self.assertEqual(self.moment(), peak)

    def test_a_click_picks_the_moment(self):
        left, y, width = self.plot()
        self.chromium.click_at(left + width / 2, y)
        self.assertAlmostEqual(self.moment(), 9417 / 2, delta=9417 / width + 1)
        self.assertEqual(self.shown(), (0, 100))

    def test_the_legend_reads_the_pointer_and_hides_curves(self):
        left, y, width = self.plot()
        self.chromium.mouse("mouseMoved", left + width / 3, y)
        self.chromium.settle()
        self.assertRegex(self.text(".where"), "^Pointer: operation 3")
        before = self.colours(".plot canvas")
        self.chromium.click(".key")
        self.assertLess(self.colours(".plot canvas"), before)

    def test_time_can_be_the_axis(self):
        self.open(self.training)
        self.choose("select[aria-label=Axis]", "time")
        self.chromium.click("button[aria-label='Zoom in']")
        self.assertAlmostEqual(self.shown()[1], 50, delta=0.1)
        left, y, width = self.plot()
        self.chromium.click_at(left + width - 2, y)
        self.assertRegex(self.text(".summary"), r"^14\d(\.\d)? ms")


class PartsTest(PageTest):
    def setUp(self):
        super().setUp()
        self.open(self.training)

    def type_filter(self, text):
        self.chromium.run("document.getElementById('filter-text').focus()")
        self.chromium.call("Input.insertText", text=text)
        self.chromium.wait_for("document.querySelector('.summary').textContent.includes('matches')")
        self.chromium.settle()

    def test_the_filter_reaches_every_part(self):
        everything = self.count(".blocks tbody tr")
        self.type_filter("ATTENTION")
        self.assertRegex(self.text(".summary"), "the filter matches [0-9.]+ MiB in 12 blocks")
        self.assertEqual(self.count(".blocks tbody tr"), 12)
        self.assertNotIn("mlp", self.text(".flame .rows"))
        self.assertIn("filter", self.text(".legend"))
        self.chromium.click(".bar-box .controls > button:last-child")
        self.assertEqual(self.count(".blocks tbody tr"), everything)

    def test_streams_and_sizes_filter(self):
        self.choose("select[aria-label=Stream]", "1")
        self.assertEqual(self.count(".blocks tbody tr"), 1)
        self.assertIn("load_batch", self.text(".blocks tbody"))

    def test_the_map_tells_owner_and_age(self):
        left, top, width, _ = self.chromium.box(".map canvas")
        self.chromium.mouse("mouseMoved", left + width / 2, top + 8)
        self.chromium.settle()
        for part in ("12 MiB", "Age", "default stream", "0x7f20", "build_model (train.py:9)", "main (train.py:80)"):
            self.assertIn(part, self.text(".tip"))
        self.chromium.mouse("mouseMoved", left + width - 4, top + 6.4 * 22)
        self.chromium.settle()
        self.assertRegex(self.text(".tip"), "free.*Reserved792 MiB from 0x7f2000000000")

    def test_the_map_has_keys(self):
        self.chromium.run("document.querySelector('.map .scroller').focus()")
        self.chromium.press("End")
        last = self.text(".tip")
        self.chromium.press("ArrowLeft")
        self.assertNotEqual(self.text(".tip"), last)
        self.assertEqual(self.count(".blocks tr[aria-selected=true]"), 1)
        before = self.text(".map output")
        self.chromium.press("+")
        self.assertNotEqual(self.text(".map output"), before)
        self.chromium.press("Escape")
        self.assertTrue(self.chromium.run("document.querySelector('.tip').hidden"))

    def test_frames_zoom_and_move_by_keys(self):
        self.chromium.click(".frame[aria-label^=train_step]")
        self.assertRegex(self.text(".path"), "^train_step .*MiB in")
        self.chromium.run("document.querySelector('.frame[tabindex=\"0\"]').focus()")
        self.chromium.press("ArrowDown")
        self.assertIn("forward", self.chromium.run("document.activeElement.textContent"))
        self.chromium.press("Backspace")
        self.assertRegex(self.text(".path"), "^main")

    def test_the_stacks_of_the_peak_stay_in_sight(self):
        peak = self.text(".path")
        self.go(200)
        self.assertNotEqual(self.text(".path"), peak)
        self.chromium.click(".flame .group button:last-child")
        self.assertEqual(self.text(".path"), peak)
        self.go(300)
        self.assertEqual(self.text(".path"), peak)

    def test_the_table_sorts_and_leads_to_the_allocation(self):
        self.chromium.click(".blocks .group button:last-child")
        self.assertEqual(self.text(".blocks tbody tr:first-child td:last-child"), "build_model (train.py:9)")
        allocated = int(self.text(".blocks tbody tr:first-child button"))
        self.chromium.click(".blocks tbody tr:first-child button")
        self.assertEqual(self.moment(), allocated)

    def test_light_and_dark(self):
        background = "getComputedStyle(document.body).backgroundColor"
        light = self.chromium.run(background)
        self.chromium.click("nav button")
        dark = self.chromium.run(background)
        self.assertNotEqual(light, dark)
        self.chromium.resize(1280, 1000, dark=True)
        self.open(self.training)
        self.assertEqual(self.chromium.run(background), dark)

    def test_tab_reaches_every_part_with_a_ring(self):
        seen = set()
        for _ in range(60):
            self.chromium.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
            self.chromium.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
            part, ring = self.chromium.run(
                "(() => { const part = document.activeElement.closest('section, nav, .bar-box');"
                "return [part?.id || part?.tagName, getComputedStyle(document.activeElement).outlineStyle]; })()")
            seen.add(part)
            self.assertNotEqual(ring, "none", part)
        self.assertLessEqual({"chart", "map", "stacks", "blocks", "NAV", "DIV"}, seen)


class ChunksTest(PageTest):
    """The trace has rows of 4 MiB: eight at home, then three of the view."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = pictures.write_chunks(cls.folder)

    def setUp(self):
        super().setUp()
        self.open(self.page)
        self.chromium.click("button[aria-label='Go to the end']")

    def tip(self, row, part):
        """What the map tells of the row, at a part of its width."""
        left, top, width, _ = self.chromium.box(".map canvas")
        self.chromium.mouse("mouseMoved", left + 118 + (width - 119) * part, top + row * 22 + 8)
        self.chromium.settle()
        return self.text(".tip")

    def test_a_block_tells_its_chunk_and_how_much_of_it_is_used(self):
        self.assertIn("4 MiB a row", self.text(".map output"))
        self.assertRegex(self.tip(1, 0.5), "^10 MiBNameweights.*Chunk16 MiB, 16 MiB in blocks, from 0x7f2000000000, "
                                           "mapped at 1 place in viewsbuild_model")
        self.assertRegex(self.tip(7, 0.5), "^8 MiBNamebatch.*Chunk8 MiB, 8 MiB in blocks, from 0x7f2001800000"
                                           "load_batch")

    def test_free_memory_tells_its_chunk(self):
        self.assertRegex(self.tip(5, 0.75), "^2 MiB freeAddress0x7f2001600000.*Chunk8 MiB, 6 MiB in blocks, from "
                                            "0x7f2001000000, mapped at 1 place in views$")

    def test_a_block_in_a_view_is_told_there_and_where_its_memory_is_at_home(self):
        at_home = self.tip(3, 0.5)
        self.assertEqual(at_home, self.tip(9, 0.5))
        self.assertEqual(at_home, self.tip(4, 0.5))
        self.assertRegex(at_home, "^12 MiBNameactivations.*Address0x7f2040a00000View6 MiB at home at 0x7f2000a00000, "
                                  "6 MiB at home at 0x7f2001000000Chunks2, of 24 MiB, 22 MiB in blocks, "
                                  "mapped at 2 places in viewsforward")
        self.assertIn("Blocks in views are underlined", self.text(".map p"))

    def test_the_selected_block_is_marked_where_its_memory_is(self):
        self.tip(3, 0.5)
        before = self.chromium.screenshot()
        left, top, width, _ = self.chromium.box(".map canvas")
        self.chromium.click_at(left + width / 2, top + 3 * 22 + 8)
        self.assertIn("activations", self.text(".blocks tr[aria-selected=true]"))
        self.assertGreater(pictures.difference(self.chromium, before, self.chromium.screenshot()), 0)

    def test_before_the_view_there_is_none(self):
        self.go(3)
        self.assertIn("Ticks mark where chunks begin and end.", self.text(".map p"))
        self.assertNotIn("views", self.text(".map p"))
        self.assertIn("8 MiB lie in 1 chunk without a block: a trim returns them.", self.text(".words"))

    def test_what_is_pinned_is_counted_in_chunks(self):
        self.assertIn("No chunk is without a block: a trim returns nothing.", self.text(".words"))
        self.assertIn("2 MiB of free memory lie beside blocks and cannot be returned.", self.text(".words"))
        self.assertIn("2 MiB pinned in 1 chunk by 1 block of 12 MiB from activations, forward", self.text(".pins"))
        self.assertIn("32 MiB are reserved: 30 MiB live", self.text(".words"))


class WhatIfTest(PageTest):
    def test_other_policies_and_limits(self):
        fragtest, trace = os.environ["VMM_FRAGTEST"], os.path.join(TRACES, "gnn.trace.gz")
        self.open(self.write("what-if", trace, "--fragtest", fragtest))
        self.assertEqual(self.count(".whatif tbody tr"), 6)
        results = os.path.join(self.folder, "results.json")
        subprocess.run([fragtest, "--trace", trace, "--driver", "sim", "--quiet", "--memory", "none",
                        "--policy", "expandable", "--json", results],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        with open(results, encoding="utf-8") as file:
            expected = json.load(file)["runs"][0]["peak_reserved_mib"] * UNITS["MiB"]
        self.assertAlmostEqual(size(self.text(".whatif tbody tr:nth-child(2) td")), expected, delta=0.006 * expected)
        self.assertEqual(self.count(".verdict.bad"), 0)
        self.choose(".limit input", "0")
        self.assertEqual(self.count(".verdict.bad"), 6)
        self.assertRegex(self.text(".words"), "MiB by vmmcache, which reserves")


class PictureTest(PageTest):
    def compare(self, taken, folder, most):
        for name, png in taken.items():
            with open(os.path.join(folder, name + ".png"), "rb") as file:
                kept = file.read()
            found = pictures.difference(self.chromium, png, kept)
            self.assertLess(found, most, f"{name}.png: see what changed, and run tests/report/pictures.py")

    def test_the_graphics_look_as_expected(self):
        self.compare(pictures.take_graphics(self.chromium, self.training), pictures.GRAPHICS, MOST_DIFFERENCE)

    def test_chunks_and_views_look_as_expected(self):
        taken = pictures.take_graphics(self.chromium, pictures.write_chunks(self.folder), pictures.CHUNKS)
        self.compare(taken, pictures.GRAPHICS, MOST_DIFFERENCE)

    def test_the_page_looks_as_in_the_document(self):
        taken = pictures.take_windows(self.chromium, self.training)
        taken |= pictures.take_map(self.chromium, pictures.write_chunks(self.folder))
        self.compare(taken, pictures.WINDOWS, MOST_DIFFERENCE_WITH_TEXT)

    def test_a_curve_without_its_colour_is_noticed(self):
        with open(self.training, encoding="utf-8") as file:
            text = file.read()
        page = os.path.join(self.folder, "pale.html")
        with open(page, "w", encoding="utf-8") as file:
            file.write(text.replace("--live:", "--other:"))
        with self.assertRaisesRegex(AssertionError, "chart-light.png"):
            self.compare(pictures.take_graphics(self.chromium, page), pictures.GRAPHICS, MOST_DIFFERENCE)


if __name__ == "__main__":
    unittest.main()
