#!/usr/bin/env python3
"""Records the requests of PyTorch programs without a GPU, as traces that fragtest replays.

usage: trace.py FOLDER [NAME[:SEED]]...        all programs with seed 1, if none is named

The programs (programs.py) run on PyTorch's meta device, whose tensors have no memory. Needs g++, and of Debian 12
python3-torch and libtorch-dev (PyTorch 1.13).
"""
import ctypes
import gzip
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def recorder_build(folder):
    path = os.path.join(folder, "recorder.so")
    subprocess.run(["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(HERE, "recorder.cpp"),
                    "-lc10"], check=True)
    recorder = ctypes.CDLL(path)
    recorder.recorder_begin.restype = recorder.recorder_end.restype = ctypes.c_bool
    recorder.recorder_install()
    return recorder


def record(recorder, program, seed, path):
    """Blocks that live to the end of the program are freed in the trace: fragtest may replay it several times."""
    plain = path + ".part"
    if not recorder.recorder_begin(plain.encode()):
        raise OSError("%s: cannot be created" % plain)
    program(random.Random(seed), recorder.recorder_stream)
    if not recorder.recorder_end():
        raise OSError("%s: cannot be written" % plain)
    with open(plain, "rb") as source, gzip.open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    os.unlink(plain)


def main(folder, *plan):
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as build:
        recorder = recorder_build(build)
    import programs  # their first tensor must find the recorder
    known = {program.__name__: program for program in programs.PROGRAMS}
    for part in plan or known:
        name, _, seed = part.partition(":")
        if name not in known or (seed and not seed.isdecimal()):
            sys.exit("trace.py: \"%s\": choose from %s" % (part, ", ".join(known)))
        path = os.path.join(folder, "%s.trace.gz" % part.replace(":", "_"))
        record(recorder, known[name], int(seed or 1), path)
        print("%s: %d KiB" % (path, os.path.getsize(path) >> 10), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
