"""A snapshot, opened by PyTorch's own viewer"""
import os
import subprocess
import sys
import tempfile

import torch
import vmmcache

vmmcache.install()
vmmcache.record_history()
model = torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for batch in (512, 1500, 800, 3000):
    x = torch.randn(batch, 2048, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        noise = torch.randn_like(x)
    torch.cuda.current_stream().wait_stream(side)
    noise.record_stream(torch.cuda.current_stream())
    model(x + noise).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
folder = os.environ.get("TOUR_OUT") or tempfile.mkdtemp()
path = os.path.join(folder, "snapshot.pickle")
vmmcache.dump_snapshot(path)
checked = subprocess.run([sys.executable, "-m", "vmmcache", path], capture_output=True, text=True,
                         check=False)
print(checked.stdout.replace(path, "snapshot.pickle") + checked.stderr)
for plot in ("trace_plot", "segment_plot"):
    html = os.path.join(folder, plot + ".html")
    done = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", plot, path, "-o", html],
                          capture_output=True, text=True, check=False)
    print("python -m torch.cuda._memory_viz %s snapshot.pickle -o %s.html: status %d, %d KiB%s" %
          (plot, plot, done.returncode, os.path.getsize(html) >> 10 if done.returncode == 0 else 0,
           "" if done.returncode == 0 else done.stderr[-500:]))
stats = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", "stats", path],
                       capture_output=True, text=True, check=False)
print("\n".join((stats.stdout or stats.stderr[-500:]).splitlines()[:12]))
