"""The layout marker of a store: which versions of this library may use its records.

Two programs that store the same lock in different ways do not exclude each other (hazard L5). So a
store keeps a marker, and a client compares it with its own layout before its first request. The
marker is "<version> <lowest>": the version of the layout that the records have, and the lowest
version whose programs may read and write them. A marker of one number admits that version only.

The marker stands for every program that it admits: each of them may be running. So a newer program
uses the store only if it is compatible with the lowest of them. "2 1" admits programs of layout 1,
beside which one of layout 3, whose lowest is 2, must not run.
"""

from __future__ import annotations

from leaselock._named_tuple import NamedTuple
from leaselock.errors import NotApplied
from leaselock.version import __version__

UPGRADE = "use that release of leaselock here, too"


class Layout(NamedTuple):
    """A layout of the records in a store."""

    version: int
    lowest: int
    """The lowest version of a layout that is compatible with this one."""

    def __str__(self) -> str:
        return f"{self.version} {self.lowest}" if self.lowest < self.version else f"{self.version}"

    def admits(self, marker: Layout) -> bool:
        """Whether a program of this layout may run beside all programs that the marker admits."""
        if marker.version > self.version:
            return marker.lowest <= self.version
        return self.lowest <= marker.lowest


def parsed(marker: str) -> Layout | None:
    """The layout that a marker names; None if it is not a marker."""
    words = marker.split(" ")
    if len(words) > 2 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    return Layout(int(words[0]), int(words[-1]))


def layout_problem(marker: str, supported: Layout, older: str) -> str | None:
    """What is wrong with the layout of a store, and what to do; None if a program of the layout
    *supported* may use the store. *older* says what to do about records of an older layout.
    """
    stored = parsed(marker)
    if stored is None:
        return f"its layout marker is {marker!r:.60}, which no leaselock writes: {older}"
    if supported.admits(stored):
        return None
    newer = stored.version > supported.version
    admitting = newer or stored.lowest < stored.version
    from_version = f" (programs of layout {stored.lowest} or later may use it)" if admitting else ""
    return (
        f"it has the layout {stored.version} of {'a newer' if newer else 'an older'} leaselock"
        f"{from_version}, and leaselock {__version__} here needs layout {supported.lowest}"
        f"{f' to {supported.version}' if supported.lowest < supported.version else ''}: "
        f"{UPGRADE if newer else older}"
    )


def check_layout(store: str, marker: str, supported: Layout, older: str) -> None:
    """NotApplied if a program of the layout *supported* must not use the *store*."""
    problem = layout_problem(marker, supported, older)
    if problem is not None:
        raise NotApplied(f"{store} cannot be used: {problem}", "misconfigured")
