"""Three batches of conversations are continued in turn. Each has a cache that grows by a token a step, and is dropped
when the conversation ends."""
import random

import torch
from transformers import DynamicCache

from workloads import llama

SLOTS = 3


class Conversation:
    """A batch of prompts, and the number of tokens still to generate."""

    def __init__(self, rng):
        self.left = rng.randint(8, 30)
        self.cache = DynamicCache()
        self.ids = llama.tokens(rng.randint(4, 16), rng.randint(200, 2000))

    def generate(self, model):
        """Generates one token; returns its scores."""
        out = model(input_ids=self.ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        scores = out.logits[:, -1].float()
        self.ids = scores.argmax(-1, keepdim=True)
        self.left -= 1
        return scores


class Generation:
    WARM = 10

    def __init__(self):
        self.model = llama.model(2048, 5632, 12, 16, 8, 8192).eval()
        self.rng = random.Random(7)
        self.slots = [None] * SLOTS

    @torch.no_grad()
    def step(self, number):
        sums = []
        for at, conversation in enumerate(self.slots):
            if conversation is None or conversation.left == 0:
                self.slots[at] = conversation = None
                conversation = self.slots[at] = Conversation(self.rng)
            sums.append(conversation.generate(self.model).double().sum())
        return torch.stack(sums)
