"""Allocated and reserved"""
import torch
import vmmcache

vmmcache.install()


def show(when):
    print("%-26s allocated %8.1f MiB   reserved %8.1f MiB" %
          (when, vmmcache.memory_allocated() / 2**20, vmmcache.memory_reserved() / 2**20))


show("at the start")
x = torch.randn(256, 1024, 1024, device="cuda")
show("x: 1 GiB")
y = x * 2
show("y = x * 2")
del x
show("del x")
z = torch.randn(128, 1024, 1024, device="cuda")
show("z: 512 MiB")
del y, z
show("del y, z")
vmmcache.empty_cache()
show("empty_cache()")
