"""Pages of running processes: from the trace that a process records, or from samples of what it publishes."""
import os
import subprocess
import sys
import time
import unittest

import browser
from support import MIB, FileTest
from vmmcache import report, report_process
from vmmcache.report_recording import ReportError

WORKER, TOP = os.environ["VMM_TEST_WORKER"], os.environ["VMM_TEST_TOP"]


class ProcessTest(FileTest):
    def start(self, **settings):
        """tests/vmmtop/worker.c"""
        plain = {name: value for name, value in os.environ.items() if name not in ("VMM_TRACE", "VMM_MONITOR")}
        self.worker = subprocess.Popen([WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       cwd=self.folder, env=dict(plain, VMM_DRIVER="sim", **settings))
        self.addCleanup(self.end)
        self.assertEqual(self.worker.stdout.readline(), "ok\n")
        return self.worker.pid

    def end(self):
        self.worker.kill()
        self.worker.wait(30)
        self.worker.stdin.close()
        self.worker.stdout.close()

    def do(self, *lines):
        for line in lines:
            self.worker.stdin.write(line + "\n")
            self.worker.stdin.flush()
            self.assertEqual(self.worker.stdout.readline(), "ok\n")

    def until(self, what, wanted, seconds=30):
        """Waits until what() is what is wanted; the threads of the library write twice a second."""
        end = time.monotonic() + seconds
        while (found := self.found(what)) != wanted:
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.05)

    @staticmethod
    def found(what):
        """A trace may have no operations yet."""
        try:
            return what()
        except ReportError as error:
            return error

    def run_report(self, *arguments):
        return super().run_report(*map(str, arguments), "--vmmtop", TOP)


def live_bytes(found, state=None):
    state = found.operations if state is None else state
    return sum(size for start, life, size in zip(found.start, found.life, found.bytes)
               if start <= state and (not life or start + life > state))


class RecordedTest(ProcessTest):
    def test_the_trace_of_a_process_is_shown_up_to_now(self):
        pid = self.start(VMM_TRACE="relative.trace")
        self.do("pool weights", f"alloc 1 {5 * MIB} 2", f"alloc 0 {3 * MIB} 1", "free")
        self.until(lambda: live_bytes(report_process.read(pid)), 3 * MIB)
        found = report_process.read(pid)
        self.assertEqual((found.kind, live_bytes(found)), ("trace", 3 * MIB))
        self.assertIn("weights", found.pools.texts)
        self.assertEqual(found.name, f"vmmtop_worker (pid {pid})")
        self.do("free")  # it goes on recording
        self.until(lambda: live_bytes(report_process.read(pid)), 0)

    def test_chunks_and_the_view_of_a_block_are_shown(self):
        pid = self.start(VMM_TRACE="view.trace")
        part = f"alloc 0 {40 * MIB} 1"
        self.do(part, part, part, "free", "free", part, part, "free", "free", f"alloc 0 {80 * MIB} 1")
        self.until(lambda: len(report_process.read(pid).start), 6)
        mappings = report_process.read(pid).mappings
        self.assertEqual(sum(mappings.bytes), 120 * MIB)
        self.assertEqual(sum(not size for size in mappings.bytes), 40)
        self.assertEqual(self.run_report(pid), (0, ""))
        with browser.Browser() as chromium:
            chromium.resize(1280, 1000)
            chromium.open(self.path("page.html"))
            chromium.click("button[aria-label='Go to the end']")
            left, top, width, height = chromium.box(".map canvas")
            chromium.mouse("mouseMoved", left + width / 2, top + height - 40)
            chromium.settle()
            tip = chromium.run("document.querySelector('.tip').textContent")
        self.assertRegex(tip, "^80 MiB.*View2 MiB at home at .*, 36 more"
                              "Chunks40, of 80 MiB, 80 MiB in blocks, mapped at 40 places in views$")

    def test_a_trace_that_has_just_begun_is_waited_for(self):
        pid = self.start(VMM_TRACE="new.trace")
        self.do(f"alloc 0 {MIB} 1")
        self.assertEqual(self.run_report(pid), (0, ""))

    def test_a_trace_that_was_renamed_or_removed_is_found(self):
        pid = self.start(VMM_TRACE="some.trace")
        self.do(f"alloc 0 {MIB} 1")
        os.rename(self.path("some.trace"), self.path("other"))
        self.until(lambda: live_bytes(report_process.read(pid)), MIB)
        os.remove(self.path("other"))
        self.assertEqual(live_bytes(report_process.read(pid)), MIB)

    def test_of_several_caches_the_one_with_most_is_shown_and_the_others_named(self):
        pid = self.start(VMM_TRACE="many.trace")
        self.do("cache", *[f"alloc 0 {MIB} 1"] * 100)
        self.until(lambda: live_bytes(report_process.read(pid)), 100 * MIB)
        status, said = self.run_report(pid)
        self.assertEqual(status, 0)
        self.assertRegex(said, r"records several caches; this is .*/many\.trace, and others are: .*/many\.trace\.2\n")

    def test_a_packed_trace_is_shown_while_it_is_written_and_after_its_process_was_killed(self):
        pid = self.start(VMM_TRACE="packed.trace.gz")
        self.do(f"alloc 0 {3 * MIB} 1")
        self.until(lambda: live_bytes(report_process.read(pid)), 3 * MIB)
        self.do(f"alloc 0 {5 * MIB} 1")
        self.until(lambda: live_bytes(report_process.read(pid)), 8 * MIB)
        self.worker.kill()
        self.worker.wait(30)
        self.assertEqual(live_bytes(report.read(self.path("packed.trace.gz"))), 8 * MIB)
        self.assertEqual(self.run_report(self.path("packed.trace.gz")), (0, ""))

    def test_a_trace_that_is_only_read_is_not_what_a_process_records(self):
        path = self.path("old.trace")
        with open(path, "w", encoding="ascii") as file:
            file.write("# recorded by libvmmcache 1\n+ 1 100 0\n")
        with open(path, encoding="ascii"), self.assertRaisesRegex(ReportError, "neither records nor publishes"):
            report_process.read(os.getpid(), 0.1, TOP)


class SampledTest(ProcessTest):
    def sampler(self, pid, size):
        """One that has seen that so many bytes are live."""
        sampler = report_process._Sampler(pid, TOP, None)
        self.until(lambda: sampler._take() and live_bytes(sampler.recording), size)
        return sampler, sampler.recording

    def test_samples_show_what_is_live_and_reserved_over_time(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.do("pool weights", f"alloc 1 {64 * MIB} 2", f"alloc 0 {32 * MIB} 1")
        sampler, found = self.sampler(pid, 96 * MIB)
        before = found.operations
        self.do("free")
        self.until(lambda: sampler._take() and live_bytes(found), 32 * MIB)
        found.finish()
        self.assertEqual((found.kind, len(found.times)), ("samples", found.operations + 1))
        self.assertEqual((live_bytes(found, before), found.spans.bytes[-1]), (96 * MIB, 96 * MIB))
        where = {(found.streams.texts[stream], found.pools.texts[pool], found.labels.texts[label])
                 for stream, pool, label in zip(found.stream, found.pool, found.label)}
        self.assertEqual({pool for _, pool, _ in where} & {"weights"}, {"weights"})
        self.assertEqual({stream for stream, _, _ in where}, {"stream 0x20", "stream 0x10"})
        self.assertEqual({label for _, _, label in where}, {"1 blocks"})

    def test_sampling_ends_with_the_process(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.do(f"alloc 0 {MIB} 1")
        sampler, _ = self.sampler(pid, MIB)
        self.do("end")
        self.assertFalse(sampler._take())
        self.assertRegex(sampler.recording.notes[0][1], "ended|destroyed")

    def test_it_samples_for_as_long_as_asked(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.do(f"alloc 0 {MIB} 1")
        began = time.monotonic()
        found = report_process.read(pid, 1.5, TOP)
        self.assertGreaterEqual(time.monotonic() - began, 1.5)
        self.assertGreater(found.operations, 0)

    def test_the_page_says_what_samples_do_not_have(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.do(f"alloc 0 {8 * MIB} 1")
        self.sampler(pid, 8 * MIB)
        self.assertEqual(self.run_report(pid, "--seconds", "0.1"), (0, ""))
        with browser.Browser() as page:
            page.open(self.path("page.html"))
            text = page.run("document.getElementById('page').textContent")
            self.assertEqual(page.complaints, [])
        for part in (f"vmmtop_worker (pid {pid})", "Samples of a process", "Samples have neither blocks nor addresses",
                     "8 MiB are reserved, 8 MiB of them live (100 %)", "Samples do not say where the free memory lies",
                     "Samples have no requests", "VMM_TRACE=FILE"):
            self.assertIn(part, text)


class RefusedTest(ProcessTest):
    def refused(self, *arguments):
        status, said = self.run_report(*arguments)
        self.assertEqual((status, said.count("\n")), (2, 1), said)
        self.assertFalse(os.path.exists(self.path("page.html")))
        return said

    def test_a_process_that_does_neither_says_how_to(self):
        self.assertRegex(self.refused(self.start(), "--seconds", "0.1"), "VMM_TRACE=FILE.*VMM_MONITOR=1")

    def test_a_pid_of_no_process(self):
        self.assertIn("no process has the pid 99999999", self.refused(99999999))

    def test_wrong_seconds(self):
        for seconds in ("0", "-1", "nan", "1e9"):
            self.assertIn("--seconds", self.refused(os.getpid(), "--seconds", seconds))

    def test_a_device_without_a_cache(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.assertIn("no cache on device 7", self.refused(pid, "--device", "7"))

    def test_samples_cannot_be_replayed(self):
        pid = self.start(VMM_MONITOR=self.folder)
        self.assertIn("--fragtest replays requests",
                      self.refused(pid, "--seconds", "0.1", "--fragtest", sys.executable))
        self.assertIn("--trace writes requests",
                      self.refused(pid, "--seconds", "0.1", "--trace", self.path("no.trace")))

    def test_a_program_that_is_not_vmmtop(self):
        for program in ("/bin/true", "/bin/echo"):
            with self.assertRaisesRegex(ReportError, f"{program} is not vmmtop"):
                report_process.read(os.getpid(), 0.1, program)

    def test_a_missing_vmmtop(self):
        with self.assertRaisesRegex(ReportError, "need vmmtop"):
            report_process.read(self.start(), 0.1, self.path("missing"))

    def test_a_file_of_digits_is_a_file(self):
        name = str(self.start())
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        with open(name, "w", encoding="ascii") as file:
            file.write("+ 1 100 0\n")
        self.assertEqual(self.run_report(name), (0, ""))


del ProcessTest
if __name__ == "__main__":
    unittest.main()
