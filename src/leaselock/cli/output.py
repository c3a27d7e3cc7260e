"""Messages and progress on stderr. Data goes to stdout and does not pass through here.

A message that cannot be written is dropped: it must not make a command fail.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leaselock.cli.formatting import escape

if TYPE_CHECKING:
    import argparse

CLEAR_LINE = "\r\x1b[K"


def say(text: str) -> None:
    """Print one line on stderr, with unprintable characters escaped."""
    _write(f"leaselock: {escape(text)}\n")


def prompt(text: str) -> str:
    """Print *text* and return the line typed in reply; empty at the end of the input."""
    _write(escape(text))
    return sys.stdin.readline().rstrip("\n")


def _write(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # The reader of stderr is gone. The command must not fail because of that, and there is
        # no other place to report it.
        return


class StatusLine:
    """One line that is overwritten in place; only on a terminal that supports it."""

    def __init__(self, options: argparse.Namespace) -> None:
        plain = options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.supported = not plain and sys.stderr is not None and sys.stderr.isatty()
        self.visible = False

    def show(self, text: str) -> None:
        """Replace the line with *text*."""
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
        except OSError:
            width = 0
        # A line that wraps could not be erased completely.
        text = f"leaselock: {escape(text)}"[: (width or 80) - 1]
        _write(CLEAR_LINE + text)
        self.visible = True

    def clear(self) -> None:
        """Erase the line."""
        if self.visible:
            _write(CLEAR_LINE)
            self.visible = False
