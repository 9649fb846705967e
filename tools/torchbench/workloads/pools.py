"""A model is trained in a MemPool. Every few steps another MemPool is made, used and dropped."""
import torch

from workloads.transformer import WIDTH, Learner, network

EVERY = 5


class Pooled(Learner):
    HAS_GRAPHS = False

    def __init__(self):
        self.pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self.pool):
            super().__init__(network())

    def train(self, length):
        # a thread of the backward pass would not use the pool
        with torch.cuda.use_mem_pool(self.pool), torch.autograd.set_multithreading_enabled(False):
            return super().train(length)

    def passing(self, number):
        """Works in a MemPool that ends with it."""
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            return torch.randn(self.sizes[number], 2 * WIDTH, device="cuda").square().mean()

    def step(self, number):
        loss = super().step(number)
        return torch.stack([loss.float(), self.passing(number)]) if number % EVERY == 0 else loss
