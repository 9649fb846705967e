"""Without caching: what still holds memory

environment: VMM_NO_CACHING=1
"""
import torch
import vmmcache

vmmcache.install()
kept = []


def step():
    x = torch.randn(8, 1024, 1024, device="cuda")
    kept.append(x[:1].clone())  # a log that grows


for number in range(4):
    step()
    free, total = torch.cuda.mem_get_info()
    print("step %d: allocated %5.1f MiB, reserved %5.1f MiB, used on the device %d MiB" %
          (number, vmmcache.memory_allocated() / 2**20, vmmcache.memory_reserved() / 2**20,
           (total - free) >> 20))
