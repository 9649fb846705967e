"""What nvidia-smi shows"""
import subprocess

import torch
import vmmcache

vmmcache.install()


def show(when):
    torch.cuda.synchronize()
    said = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False).stdout
    free, total = torch.cuda.mem_get_info()
    print("%-16s reserved %5d MiB, in use on the device %5d MiB; nvidia-smi: %s" %
          (when, vmmcache.memory_reserved() >> 20, (total - free) >> 20,
           said.strip().replace("\n", "; ") or "no process"))


x = torch.zeros(1, device="cuda")
show("one number")
y = torch.zeros(4, 1024, 1024, 256, device="cuda")
show("and 4 GiB")
del y
show("del")
vmmcache.empty_cache()
show("empty_cache()")
