"""A model is trained in a MemPool. Every few steps another MemPool is made, used and dropped."""
import torch

from workloads.sizes import log_uniform
from workloads.transformer import WIDTH, Net

BATCH, STEPS, EVERY = 8, 200, 5


class Pooled:
    WARM = 10
    HAS_GRAPHS = False

    def __init__(self):
        self.pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self.pool):
            self.model = Net().to(device="cuda", dtype=torch.bfloat16).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.lengths = log_uniform(STEPS, 256, 4096)

    def train(self, length):
        with torch.cuda.use_mem_pool(self.pool):
            x = torch.randn(BATCH, length, WIDTH, device="cuda", dtype=torch.bfloat16)
            loss = self.model(x, x.roll(1, 1))
            with torch.autograd.set_multithreading_enabled(False):  # another thread would not use the pool
                loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def passing(self, number):
        """Works in a MemPool that ends with it."""
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            return torch.randn(self.lengths[number], 2 * WIDTH, device="cuda").square().mean()

    def step(self, number):
        loss = self.train(self.lengths[number])
        return torch.stack([loss.float(), self.passing(number)]) if number % EVERY == 0 else loss
