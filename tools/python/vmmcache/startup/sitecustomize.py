"""What vmmcache.pth does, for a package that is not installed: `python -m vmmcache run` puts this folder on the path.

Python imports one module of this name at its start. Another one that this module hides is imported, too.
"""
import os
import sys

if os.environ.get("VMMCACHE_AUTOINSTALL", "0") not in ("", "0", "off"):
    import vmmcache_auto  # noqa: F401

_ours = sys.modules.pop(__name__)
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))]
try:
    import sitecustomize  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
sys.modules.setdefault(__name__, _ours)
