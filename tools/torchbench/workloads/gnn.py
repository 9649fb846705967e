"""A graph network is trained on subgraphs whose sizes differ, as a neighbour sampler gives them."""
import random

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

from workloads.training import Trained

FEATURES, HIDDEN, CLASSES = 128, 256, 47


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = SAGEConv(FEATURES, HIDDEN)
        self.second = SAGEConv(HIDDEN, HIDDEN)
        self.third = SAGEConv(HIDDEN, CLASSES)

    def forward(self, x, edges):
        x = F.relu(self.first(x, edges))
        x = F.relu(self.second(x, edges))
        return self.third(x, edges)


class GraphNet(Trained):
    def __init__(self):
        self.model = Net().cuda().train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.rng = random.Random(13)

    def loss(self, size):
        nodes, edges = size
        x = torch.randn(nodes, FEATURES, device="cuda")
        pairs = torch.randint(0, nodes, (2, edges), device="cuda")
        labels = torch.randint(0, CLASSES, (nodes,), device="cuda")
        return F.cross_entropy(self.model(x, pairs), labels)

    def step(self, number):
        nodes = self.rng.randint(50_000, 400_000)
        return self.train((nodes, round(nodes * self.rng.uniform(5, 12))))
