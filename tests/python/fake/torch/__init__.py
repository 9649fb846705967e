"""As much of PyTorch's interface as vmmcache uses: on this one allocator that was plugged in, and nothing
else. A 'tensor' is an address; there is no GPU.
"""
from types import SimpleNamespace

from . import _C, accelerator, cuda

__version__ = "2.11.0+fake"
version = SimpleNamespace(cuda="13.0", hip=None)
