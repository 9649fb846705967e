"""A small transformer, and its training on sequences of mixed lengths.

Imported by: workloads.
"""
import torch
import torch.nn.functional as F

from workloads.sizes import log_uniform
from workloads.training import Trained

WIDTH, HEADS, LAYERS = 1024, 16, 4
BATCH, STEPS = 8, 200


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


def network():
    return Net().to(device="cuda", dtype=torch.bfloat16).train()


class Learner(Trained):
    """Trains a network, or what wraps one."""

    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.sizes = log_uniform(STEPS, 256, 4096)

    def loss(self, length):
        x = torch.randn(BATCH, length, WIDTH, device="cuda", dtype=torch.bfloat16)
        return self.model(x, x.roll(1, 1))
