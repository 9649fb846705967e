"""Programs whose requests trace.py records, on PyTorch's meta device.

Each takes a random generator, which draws its sizes, and a function that sets the stream of the requests that follow.

Imported by: trace.py.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F

import layers
from layers import Adam, Block, Language, empty, linear, tokens


def experts(rng, _stream):
    """A mixture of eight experts is trained on batches of varying size."""
    model = Language(32000, 1024, [Block(1024, 16, 2048, feed=layers.Experts(1024, 2048, 8, rng)) for _ in range(10)])
    adam = Adam(model)
    for _ in range(25):
        adam.train(model.loss(tokens(rng.randint(1, 6), rng.randint(256, 3000))))


def long_context(rng, _stream):
    """Single texts of 1000 to 24 000 tokens, with checkpoints and accumulated gradients."""
    model = Language(64000, 2048, [Block(2048, 16, 5504, key_heads=4) for _ in range(16)], checkpoints=True)
    adam = Adam(model)
    for _ in range(25):
        for _ in range(rng.randint(1, 3)):
            model.loss(tokens(1, rng.randint(1000, 24000))).backward()
        adam.step()


def answer(model, rng):
    """Generates answers to a batch of prompts."""
    text = tokens(rng.randint(4, 24), rng.randint(50, 800))
    caches, latest = model.caches(), text
    for _ in range(rng.randint(20, 90)):
        scores = model(latest, caches, True)[:, -1].float()
        _shares = F.softmax(scores, -1)
        latest = scores.argmax(-1, keepdim=True)
        text = torch.cat((text, latest), 1)
    return text


def reinforce(rng, _stream):
    """Reinforcement: a model generates texts, another one rates them, and the first is trained on them, in turn."""
    model, judge = (Language(50000, 1024, [Block(1024, 16, 2816, key_heads=4) for _ in range(14)]) for _ in range(2))
    adam = Adam(model)
    for _ in range(8):
        texts = []
        with torch.no_grad():
            for _ in range(3):
                text = answer(model, rng)
                texts.append((text, judge(text).float().log_softmax(-1)[:, :, 0].clone()))
        for text, _rates in 2 * texts:
            for at in range(0, len(text), 4):
                model.loss(text[at:at + 4].contiguous()).backward()
            adam.step()


class Stage(nn.Module):
    """A convolution, a norm and an activation."""

    def __init__(self, wide, high, stride=1):
        super().__init__()
        self.weight = nn.Parameter(empty(high, wide, 3, 3))
        self.scale, self.shift = nn.Parameter(empty(high)), nn.Parameter(empty(high))
        self.stride = stride

    def forward(self, image):
        image = layers.Convolution.apply(image, self.weight, self.stride)
        return F.silu(F.group_norm(image, 8, self.scale, self.shift))


class Unet(nn.Module):
    CHANNELS = (128, 256, 384, 512)

    def __init__(self):
        super().__init__()
        wide = self.CHANNELS
        before, after = (wide[0], *wide[:-1]), (*wide[1:], wide[-1])
        self.enter, self.leave = Stage(4, wide[0]), Stage(wide[0], 8)
        self.down = nn.ModuleList(nn.ModuleList((Stage(a, b), Stage(b, b), Stage(b, b, 2)))
                                  for a, b in zip(before, wide))
        self.up = nn.ModuleList(nn.ModuleList((Stage(a + b, b), Stage(b, b))) for a, b in zip(after, wide))
        self.attention = nn.ModuleList(layers.SelfAttention(each, 8) for each in wide[1:])

    def forward(self, image):
        image, kept = self.enter(image), []
        for level, (first, second, shrink) in enumerate(self.down):
            image = first(image)
            image = image + second(image)
            if level > 0:
                flat = image.flatten(2).transpose(1, 2)
                image = image + self.attention[level - 1](flat).transpose(1, 2).reshape(image.shape)
            kept.append(image)
            image = shrink(image)
        for first, second in reversed(self.up):
            beside = kept.pop()
            image = first(torch.cat((F.interpolate(image, size=beside.shape[2:], mode="nearest"), beside), 1))
            image = image + second(image)
        return self.leave(image)


def diffusion(rng, _stream):
    """A U-net is trained on images of six shapes."""
    shapes = ((64, 64), (72, 56), (96, 40), (48, 80), (80, 80), (128, 96))
    model = Unet()
    adam = Adam(model)
    for _ in range(40):
        image = model(empty(rng.choice((4, 6, 8, 12)), 4, *rng.choice(shapes)))
        adam.train((image.float() - empty(*image.shape, dtype=torch.float32)).pow(2).mean())


def speech(rng, _stream):
    """An encoder is trained on recordings of 2 to 30 seconds, as many as make 400 seconds."""
    blocks, out = nn.Sequential(*(Block(768, 12, 3072) for _ in range(17))), linear(768, 5000, bias=True)
    adam = Adam(blocks, out)
    for _ in range(40):
        for _ in range(4):
            frames = rng.randint(200, 3000)
            sound = F.gelu(empty(40000 // frames, frames // 2, 768).requires_grad_())
            sound = F.gelu(sound + empty(*sound.shape))[:, ::2].contiguous()
            F.log_softmax(out(blocks(sound)).float(), -1).sum().backward()
        adam.step()


def images(rng, _stream):
    """A vision transformer is trained on images of 64 to 1500 patches."""
    blocks, out = nn.Sequential(*(Block(1024, 16, 4096) for _ in range(24))), linear(1024, 1000, bias=True)
    adam = Adam(blocks, out)
    for _ in range(30):
        patches = rng.randint(64, 1500)
        image = empty(rng.randint(2, max(3, 16000 // patches)), patches, 1024).requires_grad_()
        adam.train(F.log_softmax(out(blocks(image * 1).mean(1)).float(), -1).sum())


def encoder(rng, stream):
    """An encoder answers requests on four streams, and a fifth collects the answers."""
    blocks = nn.Sequential(*(Block(768, 12, 3072) for _ in range(12)))
    words = empty(30522, 768)
    with torch.no_grad():
        for _ in range(50):
            answers = []
            for number in range(8):
                stream(0)
                ids = tokens(rng.randint(8, 128), rng.randint(32, 512))
                stream(1 + number % 4)
                answers.append(blocks(F.embedding(ids, words)).float())
            stream(0)
            _sums = torch.stack([each.double().mean() for each in answers])


def sessions(rng, stream):
    """Up to 24 conversations on four streams, each with caches of its own that grow by a token a step."""
    model = Language(128000, 2048, [Block(2048, 16, 5632, key_heads=8) for _ in range(14)])
    live = {}
    with torch.no_grad():
        for step in range(420):
            if len(live) < 24 and rng.random() < 0.5:
                live[step] = model.caches(), rng.randint(5, 200)
                stream(step % 4)
                model(tokens(1, int(math.exp(rng.uniform(4, 9)))), live[step][0], True)
            for number in rng.sample(sorted(live), min(len(live), 3)):
                caches, left = live[number]
                stream(number % 4)
                _shares = F.softmax(model(tokens(1, 1), caches, True).float(), -1)
                live[number] = caches, left - 1
                if left == 1:
                    del live[number], caches


PROGRAMS = (experts, long_context, reinforce, diffusion, speech, images, encoder, sessions)
