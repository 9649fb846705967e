"""live_blocks() and leaks(): live memory by call site."""
from __future__ import annotations

from typing import NamedTuple

from . import _device, _history, _picture, _sizes, _stacks


class Site(NamedTuple):
    """The live blocks of one call site."""
    bytes: int  # of the blocks
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
    """Sites, most bytes first. str() makes a report."""

    def total(self) -> int:
        """Bytes of all of them."""
        return sum(site.bytes for site in self)

    def __str__(self) -> str:
        head = f"{_sizes.text(self.total())} in {sum(site.blocks for site in self)} blocks"
        return "\n".join([head + (", by who asked for it:" if self else ""), *map(str, self)])


def live_blocks(device=None) -> Sites:
    """The live blocks of a device, grouped by the stack that allocated them, most bytes first.

    Needs the stacks that record_history() records.
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
    """Sites that have more bytes or blocks than in an earlier live_blocks(), and how many more."""
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
