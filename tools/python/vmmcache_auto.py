"""Waits until the program imports PyTorch, and then installs vmmcache.

Python imports this module when it starts with VMMCACHE_AUTOINSTALL set: by vmmcache.pth, which a wheel puts beside the
packages, or by vmmcache/startup, which `python -m vmmcache run` puts on the path. A program that never imports PyTorch
pays for this file only.
"""
import os
import sys


class _Watch:
    """The first finder of modules. It leaves with the import of torch."""

    def find_spec(self, name, _path=None, _target=None):
        if name != "torch":
            return None
        from importlib.util import find_spec
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            sys.meta_path.insert(0, self)
            return None
        self._follow(spec.loader)
        return spec

    def _follow(self, loader):
        """Installs vmmcache when the loader has run torch. A failed import may be tried again."""
        run = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            try:
                run(module)
                _install()
            except BaseException:
                sys.meta_path.insert(0, self)
                raise
        loader.exec_module = exec_module


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
