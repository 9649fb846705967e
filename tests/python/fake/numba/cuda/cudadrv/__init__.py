"""numba.cuda.cudadrv, as far as vmmcache uses it."""
