#!/usr/bin/env python3
"""Trains the same model under PyTorch's allocator and vmmcache: 200 steps of random shapes, with side streams,
record_stream and graph replays, by deterministic algorithms.

usage: equality.py        needs VMMCACHE_LIBRARY

Runs native, vmmcache and native again; exits with 1 unless all have the same losses and final weights.
"""
import hashlib
import json
import random
import subprocess
import sys

import allocators

STEPS = 200
RUNS = ((allocators.NATIVE, "native"), (allocators.OURS, "vmmcache"), (allocators.NATIVE, "native again"))
MOST_SECONDS = 150
VOCABULARY, CLASSES, TEACHER_ROWS = 5000, 100, 64


def modules():
    import torch
    from workloads.transformer import WIDTH, Layer
    parts = {"embedding": torch.nn.Embedding(VOCABULARY, WIDTH), "first": Layer(), "second": Layer(),
             "head": torch.nn.Linear(WIDTH, CLASSES)}
    return torch.nn.ModuleDict(parts).cuda(), torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, CLASSES)).cuda(), WIDTH


class Run:
    """One training; all randomness comes from seeds."""

    def __init__(self):
        import torch
        self.torch = torch
        torch.manual_seed(1)
        self.rng = random.Random(1)
        self.parts, self.teacher, self.width = modules()
        self.optimizer = torch.optim.Adam(self.parts.parameters(), lr=1e-4)
        self.streams = [torch.cuda.Stream() for _ in range(3)]
        self.kept = []
        self.capture()

    def capture(self):
        """Captures the teacher's answer as a graph."""
        torch = self.torch
        self.input = torch.zeros(TEACHER_ROWS, self.width, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            self.teacher(self.input)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.answer = self.teacher(self.input).softmax(-1)

    def batch(self, number):
        """A batch that is created on a side stream, and used and freed on the main one."""
        torch = self.torch
        stream, main = self.streams[number % 3], torch.cuda.current_stream()
        shape = self.rng.randint(2, 32), self.rng.randint(16, 512)
        with torch.cuda.stream(stream):
            ids = torch.randint(0, VOCABULARY, shape, device="cuda")
            noise = torch.randn(*shape, self.width, device="cuda") * 0.01
        main.wait_stream(stream)
        for each in (ids, noise):
            each.record_stream(main)
        return ids, noise

    def watch(self, hidden, number):
        """A side stream reads a tensor that the main stream frees; keeps some tensors for a while."""
        torch = self.torch
        stream = self.streams[(number + 1) % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.kept.append((hidden * 2).square().mean(dim=1))
        hidden.record_stream(stream)
        while len(self.kept) > 8:
            torch.cuda.current_stream().wait_stream(stream)
            self.kept.pop(self.rng.randrange(len(self.kept)))

    def step(self, number):
        torch = self.torch
        ids, noise = self.batch(number)
        hidden = self.parts["second"](self.parts["first"](self.parts["embedding"](ids) + noise))
        pooled = hidden.mean(dim=1)
        self.input.zero_()
        self.input[:len(pooled)].copy_(pooled.detach())
        self.graph.replay()
        wanted = self.answer[:len(pooled)].clone()
        loss = torch.nn.functional.cross_entropy(self.parts["head"](pooled), wanted)
        loss = loss + hidden.square().mean() * 0.01
        loss.backward()
        self.watch(hidden.detach(), number)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def fingerprint(self):
        """A hash of the final weights, bit for bit."""
        found = hashlib.sha256()
        for each in self.parts.parameters():
            found.update(each.detach().cpu().numpy().tobytes())
        return found.hexdigest()


def train(allocator):
    """Makes one run in this process; prints a JSON line."""
    import torch.utils.deterministic
    allocators.install(allocator)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    for switch in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, "enable_%s_sdp" % switch)(False)
    run = Run()
    allocators.verify(allocator)
    losses = [run.step(number) for number in range(STEPS)]
    torch.cuda.synchronize()
    meter = allocators.Meter(allocator)
    print(json.dumps({"losses": losses, "weights": run.fingerprint(), "peaks": meter.peaks()}))


def run_apart(allocator):
    """The record of a run in a process of its own, or its error."""
    env = allocators.environment(allocator, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    try:
        done = subprocess.run([sys.executable, __file__, "--run", allocator], env=env, text=True,
                              capture_output=True, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "did not end within %d seconds" % MOST_SECONDS}
    if done.returncode != 0:
        return {"error": "status %d: %s" % (done.returncode, done.stderr[-2000:])}
    return json.loads(done.stdout.splitlines()[-1])


def describe_difference(one, other):
    """Describes how two runs differ; None if they do not."""
    pairs = list(zip(one["losses"], other["losses"]))
    steps = [number for number, (a, b) in enumerate(pairs) if a != b]
    if not steps and one["weights"] == other["weights"]:
        return None
    return "first at step %s, at most by %.2e; final weights %s" % (
        steps[0] if steps else "none", max(abs(a - b) for a, b in pairs),
        "equal" if one["weights"] == other["weights"] else "differ")


def main():
    allocators.parse_names(allocators.OURS)
    found = {name: run_apart(allocator) for allocator, name in RUNS}
    same = True
    for name, record in found.items():
        if "error" in record:
            sys.exit("error: %s: %s" % (name, record["error"]))
        print("%-13s %d steps, loss %.9f to %.9f, weights %s, peak reserved %.2f GiB" %
              (name, len(record["losses"]), record["losses"][0], record["losses"][-1],
               record["weights"][:12], record["peaks"]["reserved"] / 2**30))
    for name in ("native again", "vmmcache"):
        differs = describe_difference(found["native"], found[name])
        print("native against %s: %s" % (name, differs or "the same losses and weights, bit for bit"))
        same = same and differs is None
    sys.exit(int(not same))


if sys.argv[1:2] == ["--run"]:
    train(sys.argv[2])
else:
    main()
