"""Adapters of a frozen language model are trained, its activations recomputed."""
import torch
from peft import LoraConfig, get_peft_model

from workloads import PLACES, llama, sizes
from workloads.training import Trained

BATCH = 2
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Tuning(Trained):
    CAP_BYTES = 8 << 30
    CAP_UNIT = "tokens a sequence, batch of %d" % BATCH
    CAP_FIRST, CAP_COARSE, CAP_FINE = 2048, 256, 32

    def __init__(self):
        base = llama.model(2048, 5632, 16, 32, 8, 65536)
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=TARGETS,
                            task_type="CAUSAL_LM")
        self.model = get_peft_model(base, config).train()
        adapters = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(adapters, lr=1e-4)
        self.sizes = sizes.log_uniform(PLACES["lora"].steps, 512, 8192)

    def loss(self, length):
        return llama.loss_of(self.model, BATCH, length)

    def fit(self, size, number, steps):
        self.train(sizes.upto(size, number, steps))
