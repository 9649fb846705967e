"""200 steps of training with random shapes, a side stream that brings batches, record_stream, and graph
replays in between. Prints each loss, exactly: the same seeds must give the same losses with any allocator.

usage: gpu_train.py native|vmmcache
"""
import random
import sys

import torch
import vmmcache

STEPS, WIDTH = 200, 512


class Batches:
    """Batches of random lengths, copied by a side stream while the last step still runs."""

    def __init__(self):
        self.side = torch.cuda.Stream()
        self.draw = random.Random(11)
        self.next = self._bring()

    def _bring(self):
        rows, length = self.draw.randrange(1, 9), self.draw.randrange(16, 700)
        host = torch.randn(rows, length, WIDTH).pin_memory()
        with torch.cuda.stream(self.side):
            return host.to("cuda", non_blocking=True) * 0.5

    def take(self):
        main = torch.cuda.current_stream()
        main.wait_stream(self.side)
        batch = self.next
        batch.record_stream(main)
        self.next = self._bring()
        return batch


class Probe:
    """A captured graph of the model's first layer, replayed on inputs of its own."""

    def __init__(self, layer):
        self.given = torch.randn(32, WIDTH, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            layer(self.given)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph), torch.no_grad():
            self.result = layer(self.given).square().mean()

    def ask(self, value):
        self.given.fill_(value)
        self.graph.replay()
        return self.result


def main(allocator):
    if allocator == "vmmcache":
        vmmcache.install(patch=True)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(5)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True), 3,
        enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches, probe = Batches(), Probe(model.layers[0].linear1)
    for step in range(STEPS):
        batch = batches.take()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            loss = loss + probe.ask(step / STEPS)
        print(float(loss.detach()).hex())
        if step % 50 == 49:
            torch.cuda.empty_cache()


main(sys.argv[1])
