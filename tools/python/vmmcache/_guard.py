"""Locks that are free in a child process, even if a thread of its parent held them at the fork, and in a signal
handler, even if it interrupts the thread that holds them."""
from __future__ import annotations

import os
import threading


class Guard:
    """Its `lock` is for a with statement, which an exception of a signal handler never leaves locked. After
    fork() the child has a new one: the thread that held the old one is not there to let it go."""

    def __init__(self):
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()
