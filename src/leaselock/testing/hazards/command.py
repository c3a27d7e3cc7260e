"""What a run is asked for, and where its table goes: for the command and for `make hazards`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.hazards.catalogue import HAZARDS
from leaselock.testing.hazards.picture import draw, matplotlib
from leaselock.testing.hazards.play import AT_ONCE, play
from leaselock.testing.hazards.table import markdown
from leaselock.testing.hazards.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.testing.hazards.catalogue import Hazard
    from leaselock.testing.hazards.places import Place
    from leaselock.testing.hazards.play import Table, Told
    from leaselock.testing.hazards.ways import Way


class Wish(NamedTuple):
    """What is to be played, and what is to be written."""

    only: Sequence[str] = ()
    """Hazards by their keys; all where there is none."""
    way: Sequence[str] = ()
    """Parts of the names of ways; all where there is none."""
    at_once: int = AT_ONCE
    markdown: str | None = None
    picture: str | None = None


def hazards_of(keys: Sequence[str]) -> list[Hazard]:
    """The hazards of these keys; ValueError for one that is unknown."""
    unknown = [key for key in keys if key not in HAZARDS]
    if unknown:
        raise ValueError(f"no such hazard: {', '.join(unknown)}; known are {', '.join(HAZARDS)}")
    return [hazard for hazard in HAZARDS.values() if not keys or hazard.key in keys]


def ways_of(words: Sequence[str]) -> list[Way]:
    """The ways with one of these words in their names; ValueError when there is none."""
    found = [way for way in WAYS.values() if not words or any(w in way.name for w in words)]
    if not found:
        raise ValueError(f"no such way: {', '.join(words)}; known are {'; '.join(WAYS)}")
    return found


def run(wish: Wish, places: Sequence[Place], told: Told | None = None, head: str = "") -> Table:
    """Play, and write what is wished; *head* is what the page begins with.

    ValueError for a hazard or a way that is unknown, or when none of the ways has a place.
    """
    if wish.picture:
        matplotlib()
    ways, kinds = ways_of(wish.way), {place.kind for place in places}
    if not any(way.store in kinds for way in ways):
        wanted = ", ".join(sorted({way.store for way in ways}))
        raise ValueError(f"none of these ways can be played: name a store of {wanted}")
    table = play(hazards_of(wish.only), ways, places, told, wish.at_once)
    if wish.markdown:
        Path(wish.markdown).write_text(head + markdown(table), "utf-8")
    if wish.picture:
        draw(table, Path(wish.picture))
    return table
