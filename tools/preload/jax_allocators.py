#!/usr/bin/env python3
"""Trains a small network of changing shapes with JAX under each of its allocators, plain and with the preload library.

usage: jax_allocators.py [--passes N] LIBRARY

LIBRARY is libvmmcache_preload.so. Prints a table: the seconds of a pass over all shapes (the median of those after the
first two, which compile), the most GPU memory in use while it ran, and whether the losses are those of JAX's arena.
The exit status is 1 if one differs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pages"))
import measure  # noqa: E402
from documents import table  # noqa: E402

LENGTHS = (96, 160, 224, 320, 448, 640, 896, 1280)
BATCH, WIDTH, LAYERS = 16, 1024, 8
# name: JAX's environment
ALLOCATORS = {
    "arena": {},
    "arena, grows": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "platform": {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
    "cuda_async": {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}


def train(passes):
    """In a process of its own: prints a line of JSON."""
    import jax
    import jax.numpy as jnp

    def loss_of(weights, batch):
        x = batch
        for first, second in weights:
            scores = jax.nn.softmax(jnp.einsum("bld,bmd->blm", x, x) / WIDTH ** 0.5)
            x = x + jnp.tanh(scores @ x @ first) @ second
        return jnp.mean((x - batch) ** 2)

    @jax.jit
    def step(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        return loss, jax.tree.map(lambda weight, gradient: weight - 1e-3 * gradient, weights, gradients)

    def matrix(number):
        return 0.02 * jax.random.normal(jax.random.key(number), (WIDTH, WIDTH))

    weights = [(matrix(2 * i), matrix(2 * i + 1)) for i in range(LAYERS)]
    losses, seconds = [], []
    for number in range(passes):
        began = time.monotonic()
        for length in LENGTHS:
            batch = jax.random.normal(jax.random.key(length + number), (BATCH, length, WIDTH))
            loss, weights = step(weights, batch)
            losses.append(loss)
        jax.block_until_ready(weights)
        seconds.append(time.monotonic() - began)
    print(json.dumps({"losses": [float(loss) for loss in losses], "seconds": seconds}))


def run(library, settings, passes, meter):
    """What train() says, and the peak in bytes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_PYTHON", "VMM_"))}
    env.update(settings)
    env["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
    if library:
        env["LD_PRELOAD"] = library
    with measure.Measured(meter) as measured:
        done = subprocess.run([sys.executable, __file__, "--train", "--passes", str(passes), "-"], env=env, text=True,
                              stdout=subprocess.PIPE, check=False, timeout=300)
    if done.returncode != 0:
        raise SystemExit("error: JAX ended with status %d under %s%s" %
                         (done.returncode, settings, ", preloaded" if library else ""))
    return json.loads(done.stdout.splitlines()[-1]), measured.peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("library")
    settings = parser.parse_args()
    if settings.train:
        train(settings.passes)
        return 0
    if not os.path.isfile(settings.library):
        parser.error("%s: no such file" % settings.library)
    meter = measure.open_meter()
    rows, expected, differ = [], None, 0
    for name, env in ALLOCATORS.items():
        for library in ("", os.path.abspath(settings.library)):
            result, peak = run(library, env, settings.passes, meter)
            expected = expected or result["losses"]
            is_same = result["losses"] == expected
            differ += not is_same
            rows.append((name, "preloaded" if library else "plain", "%.3f" % statistics.median(result["seconds"][2:]),
                         measure.UNKNOWN if peak is None else "%.0f" % (peak / measure.MIB),
                         "same" if is_same else "differ"))
    print("\n".join(table(("allocator of JAX", "", "s a pass", "MiB in use", "losses"), rows)))
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
