"""torch.accelerator, as far as vmmcache uses or replaces it."""
from .memory import *  # noqa: F401,F403
