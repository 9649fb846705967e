"""live_blocks() and leaks(): who holds memory, by the place in the program that asked for it."""
from __future__ import annotations

from typing import NamedTuple

from . import _device, _history, _picture, _sizes, _stacks


class Site(NamedTuple):
    """Live blocks that one stack asked for."""
    bytes: int  # as handed out
    requested_bytes: int
    blocks: int
    frames: tuple  # (filename, line, name), innermost first; empty: not recorded

    def __str__(self) -> str:
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        where = [f"    {name} ({filename}:{line})" for filename, line, name in self.frames]
        return "\n".join([f"{_sizes.text(self.bytes)} in {blocks}", *(where or ["    " + _unknown()])])


def _unknown() -> str:
    if _history.is_recorded():
        return "allocated before stacks were recorded, or on a thread without Python"
    return "no stacks are recorded: call vmmcache.record_history('state') first"


class Sites(tuple):
    """Sites, the one with the most bytes first. Printed, it is a report."""

    def total(self) -> int:
        """Bytes of all of them."""
        return sum(site.bytes for site in self)

    def __str__(self) -> str:
        head = f"{_sizes.text(self.total())} in {sum(site.blocks for site in self)} blocks"
        return "\n".join([head + (", by who asked for it:" if self else ""), *map(str, self)])


def live_blocks(device=None) -> Sites:
    """Blocks of a device that are live, grouped by the stack that asked for them, most bytes first.

    Stacks are those that record_history() has recorded.
    """
    found = {}
    for block in _picture.take(_device.index(device)).blocks:
        if block.state == _picture.LIVE:
            frames = tuple((frame["filename"], frame["line"], frame["name"])
                           for frame in _stacks.frames(block.stack))
            size, requested, blocks = found.get(frames, (0, 0, 0))
            found[frames] = (size + block.bytes, requested + block.requested_bytes, blocks + 1)
    return _sorted(found)


def leaks(since: Sites, device=None) -> Sites:
    """Sites that have more bytes or blocks now than in an earlier live_blocks(), and how many more."""
    before = {site.frames: site for site in since}
    found = {}
    for site in live_blocks(device):
        old = before.get(site.frames, Site(0, 0, 0, site.frames))
        if site.bytes > old.bytes or site.blocks > old.blocks:
            found[site.frames] = (site.bytes - old.bytes, site.requested_bytes - old.requested_bytes,
                                  site.blocks - old.blocks)
    return _sorted(found)


def _sorted(found: dict) -> Sites:
    sites = [Site(*figures, frames) for frames, figures in found.items()]
    return Sites(sorted(sites, key=lambda site: (-site.bytes, site.frames)))
