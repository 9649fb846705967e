"""A language model is trained on batches of varying length."""
import torch

from workloads import PLACES, llama, sizes
from workloads.training import Trained

BATCH = 4


class Training(Trained):
    CAP_BYTES = 16 << 30
    CAP_UNIT = "tokens a sequence, batch of %d" % BATCH
    CAP_FIRST, CAP_COARSE, CAP_FINE = 768, 128, 16

    def __init__(self):
        self.model = llama.model(1024, 2816, 24, 16, 16, 16384).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.sizes = sizes.log_uniform(PLACES["llm"].steps, 256, 4096)

    def loss(self, length):
        return llama.loss_of(self.model, BATCH, length)

    def fit(self, size, number, steps):
        self.train(sizes.upto(size, number, steps))
