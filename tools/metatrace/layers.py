"""Layers of the programs in programs.py, on PyTorch's meta device.

Attention, convolutions and the loss are functions of their own, which allocate what the fused kernels of a GPU
allocate; everything else is PyTorch's.

Imported by: programs.py.
"""
import torch
from torch import nn
import torch.nn.functional as F

MIB = 1 << 20
# Bytes of workspaces that a convolution may ask for, as cuDNN does: which one depends on the shape alone.
WORKSPACES = (0, 0, MIB, 3 * MIB, 17 * MIB, 42 * MIB, 96 * MIB)


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def tokens(batch, length):
    return empty(batch, length, dtype=torch.int64)


def linear(wide, high, bias=False):
    return nn.Linear(wide, high, bias=bias, device="meta", dtype=torch.bfloat16)


class Attention(torch.autograd.Function):
    """A fused attention: the forward pass keeps its inputs, its output and a sum for each row."""

    @staticmethod
    def forward(ctx, query, key, value):
        out = torch.empty_like(query)
        sums = empty(*query.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    def backward(ctx, grad):
        query, key, value, _, sums = ctx.saved_tensors
        _kept = (grad.contiguous(), torch.empty_like(sums), empty(*query.shape, dtype=torch.float32))
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


class Convolution(torch.autograd.Function):
    """A convolution of odd size, padded to keep the image's, with a workspace for each kernel."""

    @staticmethod
    def workspace(*shape):
        number = sum((at + 1) * each for at, each in enumerate(shape)) % len(WORKSPACES)
        return empty(WORKSPACES[number], dtype=torch.uint8)

    @staticmethod
    def forward(ctx, image, weight, stride):
        ctx.save_for_backward(image, weight)
        count, _, height, width = image.shape
        out = empty(count, weight.shape[0], (height - 1) // stride + 1, (width - 1) // stride + 1)
        Convolution.workspace(0, *image.shape, weight.shape[0])
        return out

    @staticmethod
    def backward(ctx, grad):
        image, weight = ctx.saved_tensors
        grads = []
        for number, each in enumerate((image, weight)):
            grads.append(torch.empty_like(each))
            Convolution.workspace(number + 1, *image.shape, weight.shape[0])
        return (*grads, None)


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        logs = F.log_softmax(scores.float(), -1)
        ctx.save_for_backward(logs)
        return empty(1, dtype=torch.float32)

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_like(ctx.saved_tensors[0]).to(torch.bfloat16)


class Checkpoint(torch.autograd.Function):
    """Runs a block without keeping anything but its input, and again in the backward pass."""

    @staticmethod
    def forward(ctx, block, hidden, *_weights):
        ctx.block = block
        ctx.save_for_backward(hidden)
        with torch.no_grad():
            return block(hidden)

    @staticmethod
    def backward(ctx, grad):
        hidden = ctx.saved_tensors[0].detach().requires_grad_(True)
        inputs = [hidden, *ctx.block.parameters()]
        with torch.enable_grad():
            grads = torch.autograd.grad(ctx.block(hidden), inputs, grad)
        return None, *grads


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(empty(size))

    def forward(self, hidden):
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(hidden.dtype)


class SelfAttention(nn.Module):
    """With rotary positions. key_heads: fewer heads for keys and values."""

    def __init__(self, size, heads, key_heads=None):
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads or heads, size // heads
        self.query, self.out = linear(size, size), linear(size, size)
        self.key, self.value = (linear(size, self.key_heads * self.head) for _ in range(2))

    def split(self, hidden, heads):
        return hidden.view(*hidden.shape[:2], heads, self.head).transpose(1, 2)

    def rotate(self, hidden):
        low, high = hidden.chunk(2, -1)
        positions = empty(hidden.shape[2], self.head)
        return hidden * positions + torch.cat((-high, low), -1) * positions

    def repeat(self, hidden):
        batch, _, length, _ = hidden.shape
        if self.heads == self.key_heads:
            return hidden.contiguous()
        shape = (batch, self.key_heads, self.heads // self.key_heads, length, self.head)
        return hidden[:, :, None].expand(shape).reshape(batch, self.heads, length, self.head)

    def forward(self, hidden, cache=None):
        query = self.rotate(self.split(self.query(hidden), self.heads))
        key = self.rotate(self.split(self.key(hidden), self.key_heads))
        value = self.split(self.value(hidden), self.key_heads)
        if cache is not None:
            if cache:
                key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
            cache[:] = key, value
        out = Attention.apply(query.contiguous(), self.repeat(key), self.repeat(value))
        return self.out(out.transpose(1, 2).reshape(hidden.shape))


class Gated(nn.Module):
    def __init__(self, size, inner):
        super().__init__()
        self.gate, self.up, self.down = linear(size, inner), linear(size, inner), linear(inner, size)

    def forward(self, hidden):
        return self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Experts(nn.Module):
    """Each token goes to two experts. How many each expert gets is drawn anew in each pass."""

    def __init__(self, size, inner, count, rng):
        super().__init__()
        self.experts = nn.ModuleList(Gated(size, inner) for _ in range(count))
        self.router, self.rng = linear(size, count), rng

    def forward(self, hidden):
        flat = hidden.reshape(-1, hidden.shape[-1])
        shares = F.softmax(self.router(flat).float(), -1)
        weights = [self.rng.random() ** 2 for _ in self.experts]
        out = torch.zeros_like(flat)
        for expert, weight in zip(self.experts, weights):
            count = max(1, min(len(flat), int(2 * len(flat) * weight / sum(weights))))
            chosen = empty(count, dtype=torch.int64)
            part = expert(flat.index_select(0, chosen))
            out = out.index_add(0, chosen, part * shares[:count, :1].to(part.dtype))
        return out.view(hidden.shape)


class Block(nn.Module):
    def __init__(self, size, heads, inner, key_heads=None, feed=None):
        super().__init__()
        self.attention, self.feed = SelfAttention(size, heads, key_heads), feed or Gated(size, inner)
        self.before, self.between = Norm(size), Norm(size)

    def forward(self, hidden, cache=None):
        hidden = hidden + self.attention(self.before(hidden), cache)
        return hidden + self.feed(self.between(hidden))


class Language(nn.Module):
    """A language model of the blocks."""

    def __init__(self, words, size, blocks, checkpoints=False):
        super().__init__()
        self.words, self.norm, self.out = nn.Parameter(empty(words, size)), Norm(size), linear(size, words)
        self.blocks, self.checkpoints = nn.ModuleList(blocks), checkpoints

    def forward(self, ids, caches=None, is_last_only=False):
        hidden = F.embedding(ids, self.words)
        for number, block in enumerate(self.blocks):
            if self.checkpoints:
                hidden = Checkpoint.apply(block, hidden, *block.parameters())
            else:
                hidden = block(hidden, caches[number] if caches else None)
        hidden = self.norm(hidden)
        return self.out(hidden[:, -1:] if is_last_only else hidden)

    def caches(self):
        return [[] for _ in self.blocks]

    def loss(self, ids):
        scores = self(ids)[:, :-1]
        return CrossEntropy.apply(scores.reshape(-1, scores.shape[-1]))


class Adam:
    """AdamW without fused kernels."""

    def __init__(self, *modules):
        self.weights = [weight for module in modules for weight in module.parameters()]
        self.moments = {}

    def step(self):
        for weight in self.weights:
            if weight.grad is None:
                continue
            if weight not in self.moments:
                self.moments[weight] = torch.zeros_like(weight), torch.zeros_like(weight)
            first, second = self.moments[weight]
            _step = first.mul_(0.9) / second.sqrt().add_(1e-8)
        for weight in self.weights:
            weight.grad = None

    def train(self, loss):
        loss.backward()
        self.step()
