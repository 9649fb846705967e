"""A training step is captured as a graph; between its replays eager work allocates and frees. A second model makes the
same steps without a graph. The results are the losses of both."""
import copy
import random

import torch

BATCH, WIDTH, LAYERS = 4096, 2048, 6
KEPT = 6  # eager tensors at a time


def network():
    parts = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 1)).cuda()


class Learner:
    """A model whose inputs keep their addresses."""

    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        self.input = torch.zeros(BATCH, WIDTH, device="cuda")
        self.target = torch.zeros(BATCH, 1, device="cuda")

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(self.model(self.input), self.target)
        loss.backward()
        self.optimizer.step()
        return loss


class Captured:
    WARM = 3

    def __init__(self):
        model = network()
        self.eager = Learner(copy.deepcopy(model))
        self.learner = Learner(model)
        self.rng = random.Random(19)
        self.kept = []
        for _ in range(3):
            self.eager.train()
        self.capture()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.learner.train()
        torch.cuda.current_stream().wait_stream(side)
        self.learner.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.learner.train()

    def eager_work(self):
        """Creates tensors of 1 to 256 MiB and keeps some of them for a while."""
        for _ in range(4):
            rows = self.rng.randint(128, 32768)
            made = torch.randn(rows, WIDTH, device="cuda")
            self.kept.append(made @ made[:64].T)
            self.kept.append(made)
        del self.kept[:-KEPT]
        return self.kept[-1].double().sum()

    def step(self, number):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        y = torch.randn(BATCH, 1, device="cuda")
        for learner in (self.eager, self.learner):
            learner.input.copy_(x)
            learner.target.copy_(y)
        eager = self.eager.train().detach()
        work = self.eager_work()
        self.graph.replay()
        return torch.stack([self.loss.detach().double(), eager.double(), work])
