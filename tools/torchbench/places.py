"""The root of this source tree, and texts without paths of this machine. Makes tools/torch/processes.py importable.

Imported by: scripts in tools/torchbench.
"""
import os
import re
import sys

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(HOME, "tools", "torch"))


def placeless(text):
    """A text such as a traceback, with paths relative to the source tree or to site-packages."""
    return re.sub(r'[^\s"\']*/(site|dist)-packages/', "", text.replace(HOME + os.sep, ""))
