"""What workloads that train share: a step of the optimizer, and the search under a limit.

May be imported by: workloads.
"""


class Trained:
    """Wants self.model, self.optimizer, and loss(size) of the class that derives from it."""

    WARM = 10

    def trained(self, size):
        """One step; its loss."""
        loss = self.loss(size)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def step(self, number):
        return self.trained(self.sizes[number])

    def clear(self):
        self.optimizer.zero_grad(set_to_none=True)
