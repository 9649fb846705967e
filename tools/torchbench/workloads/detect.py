"""A detector is trained on images of mixed sizes."""
import random

import torch
from torchvision.models.detection import fasterrcnn_resnet50_fpn

from workloads.training import Trained

BATCH = 4
CLASSES = 21
SHORT_SIDES = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
LONGEST_RATIO = 1.6


class Detection(Trained):
    CAP_BYTES = 8 << 30
    CAP_UNIT = "pixels of the short side, batch of %d" % BATCH
    CAP_FIRST, CAP_COARSE, CAP_FINE = 256, 64, 8

    def __init__(self):
        self.model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=CLASSES,
                                             min_size=SHORT_SIDES, max_size=1333).cuda().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.rng = random.Random(11)

    def image(self, height, width):
        """An image, and boxes in it."""
        count = self.rng.randint(1, 12)
        corners = torch.tensor([[self.rng.uniform(0, 0.7), self.rng.uniform(0, 0.7),
                                 self.rng.uniform(0.1, 0.3), self.rng.uniform(0.1, 0.3)]
                                for _ in range(count)])
        scale = torch.tensor([width, height], dtype=torch.float32)
        low = corners[:, :2] * scale
        boxes = torch.cat([low, low + corners[:, 2:] * scale], dim=1).cuda()
        labels = torch.tensor([self.rng.randint(1, CLASSES - 1) for _ in range(count)]).cuda()
        return torch.rand(3, height, width, device="cuda"), {"boxes": boxes, "labels": labels}

    def loss(self, size):
        """size: [(height, width)] of the images"""
        images, targets = zip(*(self.image(*each) for each in size))
        losses = self.model(list(images), list(targets))
        return sum(losses.values())

    def step(self, number):
        return self.train([(self.rng.randint(400, 900), self.rng.randint(400, 1200))
                             for _ in range(BATCH)])

    def fit(self, size, number, steps):
        """All images have this short side. The long side varies, except in the second and the last step."""
        self.model.transform.min_size = (size,)
        self.model.transform.max_size = round(size * LONGEST_RATIO)
        rng = random.Random(size * 1000 + number)
        ratios = [LONGEST_RATIO if number in (1, steps - 1) else rng.uniform(1.0, LONGEST_RATIO)
                  for _ in range(BATCH)]
        self.train([(size, int(size * ratio)) for ratio in ratios])
