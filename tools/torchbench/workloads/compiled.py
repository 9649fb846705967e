"""A training step of a small transformer, compiled."""
import torch
import torch._functorch.config
import torch._inductor.config
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS, LAYERS = 16, 1024, 1024, 16, 4


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.LayerNorm(WIDTH)
        self.mixed = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.between = torch.nn.LayerNorm(WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.mixed(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x, target):
        for layer in self.layers:
            x = layer(x)
        return F.mse_loss(x.float(), target.float())


class Compiled:
    WARM = 5
    OPTIONS = {}
    TREES = True  # PyTorch's default

    def __init__(self):
        torch._dynamo.reset()
        torch._inductor.config.triton.cudagraph_trees = self.TREES
        if hasattr(torch._functorch.config, "donated_buffer"):
            torch._functorch.config.donated_buffer = self.TREES  # True is PyTorch's default, and breaks plain graphs
        self.model = Net().to(device="cuda", dtype=torch.bfloat16).train()
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
