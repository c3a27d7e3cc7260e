"""version: the version of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock import __version__
from leaselock._cli.answer import answer

if TYPE_CHECKING:
    from leaselock._cli.options import Options


def do_version(options: Options) -> int:
    """Print the version."""
    if options.json:
        answer(options, {"version": __version__})
    else:
        print(f"leaselock {__version__}")
    return 0
