"""numba, as far as vmmcache uses it."""
