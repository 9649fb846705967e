"""A fake PyTorch as a folder of packages: the fake modules, headers with the shape of PyTorch's, and libraries."""
import os
import shutil

from support import FAKE, HERE

HEADERS = os.path.join(HERE, "..", "torch", "shim", "include")
CUDA_HEADERS = ("cuda_runtime_api.h", os.path.join("crt", "host_defines.h"))

LOAD = """
import os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libc10.so'))  # as the import of PyTorch does
"""


def make(folder, has_cuda=True):
    """Makes the tree and returns the folder for PYTHONPATH."""
    packages = os.path.join(folder, "packages")
    shutil.copytree(FAKE, packages, ignore=shutil.ignore_patterns("__pycache__"))
    torch = os.path.join(packages, "torch")
    shutil.copytree(HEADERS, os.path.join(torch, "include"))
    shutil.copytree(os.environ["VMM_TEST_C10"], os.path.join(torch, "lib"))
    with open(os.path.join(torch, "__init__.py"), "a", encoding="utf-8") as file:
        file.write(LOAD)
    if has_cuda:
        for header in CUDA_HEADERS:
            path = os.path.join(packages, "nvidia", "cu13", "include", header)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii"):
                pass
    return packages
