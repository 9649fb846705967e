"""torch._inductor.config, as far as vmmcache changes it."""
from types import SimpleNamespace

triton = SimpleNamespace(cudagraph_trees=True)
