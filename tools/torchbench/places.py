"""Where this tree lies, and texts without places of a machine.

May be imported by: scripts in tools/torchbench.
"""
import os
import re

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def placeless(text):
    """A text such as a traceback, with files named from where everybody has them."""
    return re.sub(r'[^\s"\']*/(site|dist)-packages/', "", text.replace(HOME + os.sep, ""))
