"""PyTorch's own functions report vmmcache's statistics"""
import torch
import vmmcache

vmmcache.install(patch=True)
x = torch.zeros(1000, 1000, device="cuda")
print("memory_allocated     ", torch.cuda.memory_allocated())
print("max_memory_allocated ", torch.cuda.max_memory_allocated())
print("memory_reserved      ", torch.cuda.memory_reserved())
stats = torch.cuda.memory_stats()
for key in ("allocation.all.current", "requested_bytes.all.current", "active_bytes.all.peak", "num_ooms"):
    print("%-28s %d" % (key, stats[key]))
print(torch.cuda.memory_summary(abbreviated=True))
