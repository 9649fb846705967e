"""The package in a real PyTorch on a GPU: figures, errors, history and what the patch replaces. That programs
get right results is checked by tools/torchbench.

usage: gpu_torch.py            with VMMCACHE_LIBRARY and PYTHONPATH as the other tests have them

Exits with 77 where there is no PyTorch with CUDA or no GPU; with VMM_REQUIRE_GPU=1 that is a fault.
"""
import gc
import os
import subprocess
import sys
import tempfile
import unittest

import vmmcache

try:
    import torch
    import torch.cuda._memory_viz as memory_viz
except ImportError:
    torch = None

MIB = 1 << 20
SKIPPED = 77


def tensor(mebibytes, device="cuda"):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device=device)


class GpuTest(unittest.TestCase):
    """Leaves no tensor, limit or history behind."""

    def setUp(self):
        self.addCleanup(self._clean)
        self._clean()

    def _clean(self):
        vmmcache.record_history(None)
        vmmcache.set_memory_limit(None)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class FiguresTest(GpuTest):
    def test_allocated_and_reserved_around_del(self):
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        block = tensor(512)
        self.assertEqual(torch.cuda.memory_allocated() - allocated, 512 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved() - reserved, 512 * MIB)
        del block
        self.assertEqual(torch.cuda.memory_allocated(), allocated)
        self.assertGreaterEqual(torch.cuda.memory_reserved() - reserved, 512 * MIB)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved() - reserved, 16 * MIB)

    def test_the_device_has_what_went_back(self):
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        block = tensor(4096)
        self.assertLess(torch.cuda.mem_get_info()[0], before - 4000 * MIB)
        del block
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertGreater(torch.cuda.mem_get_info()[0], before - 64 * MIB)

    def test_pytorch_answers_from_the_library(self):
        self.assertEqual(torch.cuda.get_allocator_backend(), "vmmcache")
        self.assertIn("libvmmcache", torch.cuda.memory_summary())
        torch.cuda.reset_peak_memory_stats()
        block = tensor(64)
        peak = torch.cuda.max_memory_allocated()
        del block
        self.assertEqual(torch.cuda.max_memory_allocated(), peak)
        self.assertGreaterEqual(peak, 64 * MIB)
        self.assertEqual(set(torch.cuda.memory_stats()), set(vmmcache.memory_stats()))

    def test_hooks_of_this_version_are_all_there(self):
        able = vmmcache.capabilities()
        self.assertEqual(able["missing_hooks"], [])
        self.assertTrue(able["cuda_graphs"] and able["record_stream"], able)


class OomTest(GpuTest):
    def test_it_is_caught_and_the_process_goes_on(self):
        vmmcache.set_memory_limit(torch.cuda.memory_reserved() + 256 * MIB)
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            tensor(1024)
        self.assertIn("limit", str(caught.exception))
        self.assertEqual(tensor(64).numel(), 64 * MIB)

    def test_more_than_the_device_has_is_caught_too(self):
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        self.assertEqual(int(torch.ones(8, device="cuda").sum()), 8)


class HistoryTest(GpuTest):
    def test_snapshots_of_training_open_in_pytorchs_viewer(self):
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).cuda()
        torch.cuda.memory._record_memory_history(max_entries=100_000)
        for rows in (100, 3000, 20, 9000):
            model(torch.randn(rows, 512, device="cuda")).sum().backward()
        del rows
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snapshot.pickle")
            torch.cuda.memory._dump_snapshot(path)
            picture = vmmcache.snapshot()
            self.assertEqual(vmmcache.check_snapshot(picture), [])
            for command in ("trace_plot", "segment_plot"):
                out = os.path.join(folder, command + ".html")
                subprocess.run([sys.executable, memory_viz.__file__, command, path, "-o", out], check=True)
                self.assertGreater(os.path.getsize(out), 1000)
            subprocess.run([sys.executable, "-m", "vmmcache", path], check=True)
        names = {frame["name"] for event in picture["device_traces"][0] for frame in event["frames"]}
        self.assertIn("test_snapshots_of_training_open_in_pytorchs_viewer", names)

    def test_a_leak_is_found(self):
        kept = []

        def leak():
            kept.append(tensor(32))

        vmmcache.record_history("state")
        leak()
        before = vmmcache.live_blocks()
        leak()
        leak()
        sites = vmmcache.leaks(before)
        self.assertEqual(sites.total(), 64 * MIB)
        self.assertIn("leak", str(sites))

    def test_history_of_many_streams_and_threads_is_sound(self):
        torch.cuda.memory._record_memory_history(max_entries=20_000)
        streams = [torch.cuda.Stream() for _ in range(4)]
        weight = torch.randn(256, 256, device="cuda", requires_grad=True)
        for turn in range(200):
            with torch.cuda.stream(streams[turn % 4]):
                given = torch.randn(64 + turn * 16, 256, device="cuda")
                (given @ weight).relu().sum().backward()
                given.record_stream(streams[(turn + 1) % 4])
            if turn % 50 == 0:
                self.assertEqual(vmmcache.check_snapshot(vmmcache.snapshot()), [])
        torch.cuda.synchronize()
        self.assertEqual(vmmcache.check_snapshot(vmmcache.snapshot()), [])


# Each turn compares results and gradients with the model's own, and scribbles over what is free: memory
# of graphs must be left alone. If only the first turn differs it is for how PyTorch makes its graphs.
REDUCE_OVERHEAD = """
import torch, vmmcache
vmmcache.install(plain_graphs=True, native=False)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
compiled = torch.compile(model, mode='reduce-overhead')

def gradients(function, given):
    model.zero_grad()
    function(given).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]

def difference(found, right):
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, right))

faults = []
for turn in range(5):
    given = torch.randn(64, 256, device='cuda')
    with torch.no_grad():
        found = [compiled(given).clone()]
        results = difference(found, [model(given)])
    grown = difference(gradients(compiled, given), gradients(model, given))
    if not (results < 1e-3 and grown < 1e-3):
        faults.append('turn %d: results differ by %g, gradients by %g' % (turn, results, grown))
    others = [torch.full((1 << 22,), 3.0, device='cuda') for _ in range(8)]
    del others
print('kept for graphs:', vmmcache.memory_summary().split('Kept for graphs: ')[1].split()[:2])
assert not faults, faults
"""


class CompileTest(GpuTest):
    def test_reduce_overhead_with_plain_graphs(self):
        done = subprocess.run([sys.executable, "-c", REDUCE_OVERHEAD], text=True, check=False, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)


def main():
    if torch is None or torch.version.cuda is None or not torch.cuda.device_count():
        print("skipped: this needs PyTorch with CUDA, and a GPU")
        sys.exit(1 if os.environ.get("VMM_REQUIRE_GPU") == "1" else SKIPPED)
    vmmcache.install(native=False)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
