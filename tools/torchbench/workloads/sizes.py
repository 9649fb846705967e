"""Random sizes from a seed: the same for every allocator.

Imported by: workloads.
"""
import math
import random

SEED = 4


def log_uniform(count, low, high, seed=SEED):
    """Whole numbers, uniform over powers of two."""
    rng = random.Random(seed)
    return [round(math.exp(rng.uniform(math.log(low), math.log(high)))) for _ in range(count)]


def upto(size, number, steps):
    """The size of step `number` of the steps that try a size: between a quarter of it and all of it. The second and the
    last step have all of it."""
    if number in (1, steps - 1):
        return size
    return random.Random(size * 1000 + number).randint(max(size // 4, 1), size)
