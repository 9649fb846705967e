"""Shared by workloads that train: a step of the optimizer, and the search under a limit.

Imported by: workloads.
"""


class Trained:
    """A subclass defines self.model, self.optimizer, loss(size), and self.sizes or step(number)."""

    WARM = 10

    def train(self, size):
        """Trains one step; returns its loss."""
        loss = self.loss(size)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def step(self, number):
        return self.train(self.sizes[number])

    def clear(self):
        self.optimizer.zero_grad(set_to_none=True)
