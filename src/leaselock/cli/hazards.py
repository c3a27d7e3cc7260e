"""hazards: what the literature warns of, played for real on every way of locking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.voice import Line, say
from leaselock.testing.hazards.command import Wish, run
from leaselock.testing.hazards.places import Place
from leaselock.testing.hazards.table import as_json, summary, text

if TYPE_CHECKING:
    import argparse

    from leaselock.testing.hazards.catalogue import Hazard
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.ways import Way

# A file of its own, in a temporary folder.
FILE = "sqlite:///"


def do_hazards(options: argparse.Namespace) -> int:
    """Play them, print the table, and say whether a default of leaselock failed."""
    named = [options.backend] if options.backend else []
    places = [Place(url) for url in [*options.stores, *named] or [FILE]]
    wish = Wish(options.only, options.way, options.at_once, options.markdown, options.picture)
    line, seen = Line(options), 0

    def told(way: Way, hazard: Hazard, outcome: Outcome) -> None:
        nonlocal seen
        seen += 1
        if options.verbose:
            say(f"{way.name}, {hazard.key}: {outcome}")
        elif line.possible and not options.quiet:
            line.show(f"{seen} played; {way.name}, {hazard.key}: {outcome.verdict}")

    try:
        table = run(wish, places, told)
    except ImportError as error:
        raise codes.Misconfigured(str(error)) from error
    finally:
        line.clear()
    print(as_json(table) if options.json else text(table), end="\n" if options.json else "")
    complaints = table.complaints()
    for complaint in complaints:
        say(complaint)
    if not options.quiet:
        say(summary(table))
    return codes.UNMET if complaints else 0
