"""Waits until the program imports PyTorch, and then installs vmmcache.

Python imports this module when it starts with VMMCACHE_AUTOINSTALL set: by vmmcache.pth, which a wheel puts beside the
packages, or by vmmcache/startup, which `python -m vmmcache run` puts on the path. A program that never imports PyTorch
pays for this file only.
"""
import os
import sys


class _Watch:
    """The first finder of modules. It leaves when torch was imported: a program may look for it before, as frameworks
    do that ask whether it is there."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    """The loader of torch. It installs vmmcache when torch has run; a failed import may be tried again."""

    def __init__(self, loader, watch):
        self._loader, self._watch = loader, watch

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install()
        if self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)


def _install():
    try:
        from vmmcache import _auto
        _auto.install()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if os.environ.get("VMMCACHE_AUTOINSTALL") == "strict":
            _end(f"vmmcache: {reason}")
        print(f"vmmcache: PyTorch keeps its own allocator: {reason}", file=sys.stderr)


def _end(line):
    """Ends the process. In a thread that is not the main one, sys.exit() would end only that, without a word."""
    import threading
    if threading.current_thread() is threading.main_thread():
        sys.exit(line)
    print(line, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


if "torch" not in sys.modules:
    sys.meta_path.insert(0, _Watch())
