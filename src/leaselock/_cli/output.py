"""Messages and progress on stderr, and what a terminal can show.

A message that cannot be written is dropped: it must not make a command fail.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaselock._cli.formatting import escape, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from leaselock._cli.options import Options

CLEAR_LINE = "\r\x1b[K"
# Selections of graphic rendition.
BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"
DEFAULT_COLUMNS, DEFAULT_LINES = 80, 24
# Seconds to the first progress message, and between two.
PROGRESS_INTERVAL = 1.0


def say(text: str) -> None:
    """Print one line on stderr, with unprintable characters escaped."""
    write_error(f"leaselock: {escape(text)}\n")


def prompt(text: str) -> str:
    """Print *text* and return the line typed in reply; empty at the end of the input."""
    write_error(escape(text))
    return sys.stdin.readline().rstrip("\n")


def write_error(text: str) -> None:
    """Write to stderr, as far as that is possible."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # The reader of stderr is gone. The command must not fail because of that, and there is
        # no other place to report it.
        return


if sys.platform == "win32":
    import ctypes
    import msvcrt

    _kernel = ctypes.WinDLL("kernel32")
    _kernel.GetConsoleMode.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    _kernel.SetConsoleMode.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    ENABLE_VIRTUAL_TERMINAL_PROCESSING = 4

    def _mode(stream: TextIO) -> tuple[int, int] | None:
        """Return the handle of a console and its mode; None if it is none, as `nul` is."""
        handle, mode = msvcrt.get_osfhandle(stream.fileno()), ctypes.c_uint32()
        found = _kernel.GetConsoleMode(handle, ctypes.byref(mode))
        return (handle, mode.value) if found else None

    def is_terminal(stream: TextIO | None) -> bool:
        """Return whether a person sees this stream."""
        return stream is not None and stream.isatty() and _mode(stream) is not None

    def _understands_escapes(stream: TextIO | None) -> bool:
        """Have a console execute escape sequences; return whether it does."""
        found = None if stream is None else _mode(stream)
        if found is None:
            return False
        handle, mode = found
        wanted = mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING
        return mode == wanted or bool(_kernel.SetConsoleMode(handle, wanted))

else:

    def is_terminal(stream: TextIO | None) -> bool:
        """Return whether a person sees this stream."""
        return stream is not None and stream.isatty()

    def _understands_escapes(stream: TextIO | None) -> bool:
        """Return whether a terminal executes escape sequences."""
        return True


def escapes_allowed(options: Options, stream: TextIO | None) -> bool:
    """Return whether colours and cursor movements may be written: https://no-color.org."""
    plain = options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and is_terminal(stream) and _understands_escapes(stream)


def painter(options: Options) -> Callable[[str, str], str]:
    """Return a function that adds a colour to a text for stdout, if that may have colours."""
    if not escapes_allowed(options, sys.stdout):
        return lambda text, _: text
    return lambda text, colour: f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def columns(stream: TextIO | None) -> int:
    """Return the width of the terminal that the stream writes to."""
    return _size(stream, "COLUMNS", 0) or DEFAULT_COLUMNS


def lines(stream: TextIO | None) -> int:
    """Return the height of the terminal that the stream writes to."""
    return _size(stream, "LINES", 1) or DEFAULT_LINES


def _size(stream: TextIO | None, variable: str, index: int) -> int:
    try:
        size = 0 if stream is None else os.get_terminal_size(stream.fileno())[index]
    except (OSError, ValueError):
        size = 0
    said = os.environ.get(variable, "")
    # A terminal without a size, as on a serial line, has it in the variable.
    return size or (int(said) if said.isdecimal() else 0)


class StatusLine:
    """One line that is overwritten in place; only on a terminal that supports it."""

    def __init__(self, options: Options) -> None:
        self.supported = escapes_allowed(options, sys.stderr)
        self.visible = False

    def show(self, text: str) -> None:
        """Replace the line with *text*."""
        # A line that wraps could not be erased completely.
        text = f"leaselock: {escape(text)}"[: columns(sys.stderr) - 1]
        write_error(CLEAR_LINE + text)
        self.visible = True

    def clear(self) -> None:
        """Erase the line."""
        if self.visible:
            write_error(CLEAR_LINE)
            self.visible = False


class Progress:
    """What is shown of a command that takes long."""

    def __init__(self, what: str) -> None:
        self.text = self.what = what

    def detail(self, text: str) -> None:
        """Show how far it has come."""
        self.text = f"{self.what}, {text}"


@contextmanager
def progress(options: Options, what: str) -> Iterator[Progress]:
    """Show *what* is being done and for how long, on a terminal, if it takes more than a moment."""
    status, shown = StatusLine(options), Progress(what)
    if options.quiet or not status.supported:
        yield shown
        return
    began = time.monotonic()
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(PROGRESS_INTERVAL):
            status.show(f"{shown.text}, {format_duration(time.monotonic() - began)}")

    thread = threading.Thread(target=show, name="leaselock-progress", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        ended.set()
        thread.join()
        status.clear()
