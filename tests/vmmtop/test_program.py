"""vmmtop as scripts use it: --json and --once, stale files, exit statuses."""
import os
import subprocess
import tempfile
import time
import unittest

from support import MIB, TOP, TopTest, Worker


class Program(TopTest):
    def test_nothing_publishes(self):
        self.assertIn("No process publishes in", self.top("--once"))
        self.assertEqual(self.read()["processes"], [])
        self.assertIn("process 1 does not publish", self.top("--once", "1", code=1))

    def test_json_shows_what_the_process_did(self):
        worker = self.worker()
        worker.do("pool weights", "alloc 0 3145728 1", "alloc 1 5242880 2", "alloc 0 1000 1", "free")
        cache = self.cache_when(lambda found: found["allocations"] == 3 and found["frees"] == 1)
        self.assertEqual(cache["driver"], os.environ["VMM_DRIVER"])
        self.assertEqual(cache["requested_bytes"], 5 * MIB + 1000)
        self.assertEqual(cache["blocks"], 2)
        self.assertGreaterEqual(cache["reserved_bytes"], 8 * MIB)
        self.assertGreater(cache["driver_calls"], 0)
        pools = {pool["name"]: pool for pool in cache["pools"]}
        self.assertEqual(set(pools), {"default", "weights"})
        self.assertEqual(pools["weights"]["requested_bytes"], 5 * MIB)
        self.assertEqual(pools["default"]["requested_bytes"], 1000)
        streams = {stream["stream"]: stream for stream in cache["by_stream"]}
        self.assertEqual(streams["0x20"]["pool"], "weights")
        self.assertEqual(streams["0x20"]["allocated_bytes"], 5 * MIB)
        self.assertGreaterEqual(streams["0x10"]["reserved_bytes"], 3 * MIB)

    def test_process_is_named(self):
        worker = self.worker()
        process, = self.read(str(worker.pid))["processes"]
        self.assertEqual(process["pid"], worker.pid)
        self.assertEqual(process["program"], "vmmtop_worker")
        self.assertLess(process["age_seconds"], 5)

    def test_once_shows_all_or_one(self):
        worker = self.worker()
        other = self.worker()
        worker.do("cache", "pool weights")
        text = self.top("--once")
        self.assertEqual(text.count("%8d vmmtop_worker" % worker.pid), 2)
        self.assertEqual(text.count("%8d vmmtop_worker" % other.pid), 1)
        text = self.top("--once", str(worker.pid))
        self.assertIn("%d vmmtop_worker   libvmmcache" % worker.pid, text)
        self.assertIn(" weights ", text)
        self.assertNotIn(str(other.pid), text)

    def test_rates_count_what_happened_meanwhile(self):
        worker = self.worker()
        worker.do("alloc 0 1000 0")
        self.assertIn("allocations 1 (", self.top("--once", str(worker.pid), "--seconds", "2"))

    def test_neighbours_are_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"VMM_DRIVER": "host", "VMM_NEIGHBOURS": "1", "VMM_NEIGHBOURS_DIR": folder,
                           "VMM_HOST_DEVICE": os.path.join(folder, "device"), "VMM_NEIGHBOURS_FLOOR": "1MiB"}
            with open(environment["VMM_HOST_DEVICE"], "wb") as file:
                file.truncate(64 * MIB)
            self.assertEqual(self.top("--neighbours", "--dir", folder),
                             "no process of this user has neighbours in %s\n" % folder)
            named = Worker(self.folder, VMM_NEIGHBOURS_NAME="trainer", VMM_NEIGHBOURS_PRIORITY="7", **environment)
            self.addCleanup(named.close)
            named.do("alloc 0 12582912 1")
            time.sleep(1)
            text = self.top("--neighbours", "--dir", folder)
            self.assertRegex(text, r"%d trainer +7 +12.0 MiB +12.0 MiB +0 KiB +0 KiB +1.0 MiB +0 KiB +0 \[#{20}\]\n"
                             % named.pid)
            named.kill()
            self.assertNotIn("trainer", self.top("--neighbours", "--dir", folder))
            record, = (name for name in os.listdir(folder) if name.startswith("vmmcache-neighbours."))
            with open(os.path.join(folder, record), "r+b") as file:
                file.write(b"damaged")
            self.assertIn("refused " + record, self.top("--neighbours", "--dir", folder))
        self.assertIn("cannot read the folder", self.top("--neighbours", "--dir", folder, code=2))

    def test_end_of_caches_and_exit_remove_the_file(self):
        first, second = self.worker(), self.worker()
        self.assertEqual(len(os.listdir(self.folder)), 2)
        first.do("end")
        self.assertEqual(os.listdir(self.folder), ["vmmcache.%d.0" % second.pid])
        self.assertEqual(second.close(), 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_file_of_a_killed_process_is_removed(self):
        worker = self.worker()
        worker.kill()
        self.assertEqual(os.listdir(self.folder), ["vmmcache.%d.0" % worker.pid])
        found = self.read()
        self.assertEqual((found["processes"], found["removed"], found["refused"]), ([], 1, []))
        self.assertEqual(os.listdir(self.folder), [])

    def test_damaged_files_are_named(self):
        worker = self.worker()
        path = os.path.join(self.folder, "vmmcache.%d.7" % worker.pid)
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(b"vmmcache" + bytes(1000))
        found = self.read()
        self.assertEqual(len(found["processes"]), 1)
        self.assertEqual(found["refused"], [{"file": os.path.basename(path),
                                             "why": "format 0; this vmmtop reads format 3"}])
        self.assertIn("refused vmmcache.", self.top("--once"))
        os.rename(path, os.path.join(self.folder, "vmmcache.%d.7" % os.getpid()))
        self.assertEqual(self.top("--once", str(os.getpid()), code=1),
                         "vmmtop: refused vmmcache.%d.7: format 0; this vmmtop reads format 3\n" % os.getpid())

    def test_help_and_wrong_usage(self):
        self.assertTrue(self.top("--help").startswith("usage: vmmtop"))
        self.assertTrue(self.top("--version").startswith("vmmtop, libvmmcache "))
        for option in ("--help", "--version"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([TOP, option], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (2, "vmmtop: the output could not be written\n"))
        self.assertIn("vmmtop: unknown option", self.top("--fast", code=2))
        self.assertIn("--prometheus takes", self.top("--prometheus", "9400", code=2))

    def test_a_folder_that_cannot_be_read_is_named(self):
        for mode in ("--once", "--json"):
            for folder, why in (("/nowhere", "No such file or directory"), (__file__, "Not a directory")):
                self.assertEqual(self.top(mode, "--dir", folder, code=2),
                                 "vmmtop: cannot read %s: %s\n" % (folder, why))


if __name__ == "__main__":
    unittest.main()
