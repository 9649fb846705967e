"""Finding a leak"""
import torch
import vmmcache

vmmcache.install()
vmmcache.record_history("state")
log = []


def train(model):
    loss = model(torch.randn(64, 4096, device="cuda")).square().mean()
    loss.backward()
    log.append(loss)  # keeps the graph of every step: loss.item() was meant


def epoch(model):
    for _ in range(3):
        train(model)


model = torch.nn.Linear(4096, 4096).cuda()
epoch(model)
before = vmmcache.live_blocks()
epoch(model)
print(vmmcache.leaks(before))
