"""A small network is trained on images of mixed sizes. Another process makes them on the GPU and sends them through a
queue, some ahead; memory of an image goes back there when the training has dropped it."""
import torch
import torch.multiprocessing

import allocators
from workloads.sizes import log_uniform
from workloads.training import Trained

BATCH, STEPS, AHEAD = 8, 200, 3
SECONDS = 60  # the longest wait for an image


def images_make(number, size):
    maker = torch.Generator("cuda").manual_seed(number)
    return torch.randn(BATCH, 3, size, size, device="cuda", generator=maker)


def images_send(allocator, sizes, wanted, made):
    """In the other process: sends the images of each number that it gets, until that is None."""
    allocators.install(allocator)
    number = wanted.get()
    while number is not None:
        images = images_make(number, sizes[number])
        made.put(images)
        del images
        number = wanted.get()


def network():
    parts, width = [], 3
    for wider in (32, 64, 128, 256):
        parts += [torch.nn.Conv2d(width, wider, 3, stride=2, padding=1), torch.nn.ReLU()]
        width = wider
    return torch.nn.Sequential(*parts).cuda()


class Received(Trained):
    HAS_GRAPHS = False

    def __init__(self):
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        context = torch.multiprocessing.get_context("spawn")
        self.wanted, self.made = context.Queue(), context.Queue()
        sizes = log_uniform(STEPS, 128, 1024)
        self.maker = context.Process(target=images_send, daemon=True,
                                     args=(allocators.installed, sizes, self.wanted, self.made))
        self.maker.start()
        for number in range(AHEAD):
            self.wanted.put(number)

    def loss(self, images):
        return (self.model(images) - images.mean()).square().mean()

    def step(self, number):
        images = self.made.get(timeout=SECONDS)
        self.wanted.put(number + AHEAD)
        return self.train(images)

    def close(self):
        self.wanted.put(None)
        for _ in range(AHEAD):
            self.made.get(timeout=SECONDS)
        self.maker.join(SECONDS)
