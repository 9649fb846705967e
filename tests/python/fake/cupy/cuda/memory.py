"""cupy.cuda.memory, as far as vmmcache uses it."""


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size} bytes")
