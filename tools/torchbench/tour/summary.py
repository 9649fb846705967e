"""The summary"""
import torch
import vmmcache

vmmcache.install()
model = torch.nn.TransformerEncoderLayer(1024, 16, batch_first=True).cuda()
for length in (512, 700, 300):
    model(torch.randn(16, length, 1024, device="cuda")).sum().backward()
torch.cuda.synchronize()
print(vmmcache.memory_summary())
