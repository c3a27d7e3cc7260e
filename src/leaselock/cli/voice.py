"""What is said to people: on stderr, one line each, and never the reason for a failure.

Data goes to stdout and does not pass here.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from leaselock.cli.words import harmless, length

if TYPE_CHECKING:
    import argparse

    from leaselock import Holder

CLEAR = "\r\x1b[K"


def say(text: str) -> None:
    """One line for people, whatever is in it."""
    _write(f"leaselock: {harmless(text)}\n")


def ask(text: str) -> str:
    """What somebody types in answer; empty at the end of the input."""
    _write(harmless(text))
    return sys.stdin.readline().rstrip("\n")


def _write(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # Nobody listens any more. A job must not die of that, and there is no one to tell.
        return


class Line:
    """One line that is written over again and again; only on a terminal that can do it."""

    def __init__(self, options: argparse.Namespace) -> None:
        plain = options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.possible = not plain and sys.stderr is not None and sys.stderr.isatty()
        self.shown = False

    def show(self, text: str) -> None:
        """Put *text* in place of what was there."""
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
        except OSError:
            width = 0
        # A line that wraps could not be taken back.
        text = f"leaselock: {harmless(text)}"[: (width or 80) - 1]
        _write(CLEAR + text)
        self.shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            _write(CLEAR)
            self.shown = False


def who(holder: Holder) -> str:
    """A holder or waiter in one word: host:pid/thread."""
    return f"{holder.host}:{holder.pid}/{holder.thread}"


def since(holder: Holder) -> str:
    """For how long, by this machine's clock."""
    return length(time.time() - holder.since)


def described(holder: Holder) -> str:
    """Who, why and for how long, in words."""
    return f"{holder} for {since(holder)}"
