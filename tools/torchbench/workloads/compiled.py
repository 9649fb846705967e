"""A training step of a small transformer, compiled."""
import torch
import torch._functorch.config
import torch._inductor.config

from workloads.transformer import WIDTH, network

BATCH, LENGTH = 16, 1024


class Compiled:
    WARM = 5
    OPTIONS = {}
    TREES = True  # PyTorch's default

    def __init__(self):
        torch._dynamo.reset()
        torch._inductor.config.triton.cudagraph_trees = self.TREES
        if hasattr(torch._functorch.config, "donated_buffer"):
            torch._functorch.config.donated_buffer = self.TREES  # True is PyTorch's default, and breaks plain graphs
        self.model = network()
        self.compiled = torch.compile(self.model, **self.OPTIONS)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, number):
        x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
        torch.compiler.cudagraph_mark_step_begin()
        loss = self.compiled(x, x.roll(1, 1))
        loss.backward()
        result = loss.detach().clone()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return result


class CompiledGraphs(Compiled):
    """PyTorch's defaults."""

    OPTIONS = {"mode": "reduce-overhead"}
    HAS_TREES = True


class CompiledPlainGraphs(CompiledGraphs):
    """The settings of vmmcache.install(plain_graphs=True), under every allocator."""

    TREES = HAS_TREES = False
