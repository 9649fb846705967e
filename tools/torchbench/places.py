"""The root of this source tree, and texts without paths of this machine. Puts tools/torch and tools/pages in the path
of modules.

Imported by: scripts in tools/torchbench.
"""
import os
import re
import sys

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(HOME, "tools", name) for name in ("torch", "pages")]


def placeless(text):
    """A text such as a traceback, with paths relative to the source tree or to site-packages."""
    return re.sub(r'[^\s"\']*/(site|dist)-packages/', "", text.replace(HOME + os.sep, ""))
