"""How `top` ends: by a signal, and when its terminal is gone, also if the screen is stuck.

textual writes by a thread with a short queue. A terminal that is gone ends that thread, and one
that reads no more blocks it. The event loop then waits for the queue for ever.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Self

from leaselock._cli import exit_codes
from leaselock._cli.signals import existing

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from types import FrameType

ENDING = existing("SIGHUP", "SIGTERM")
# Seconds for the screen to end in order.
GRACE = 3.0


class Ending:
    """Calls *exit* in the loop when `top` is to end, and ends the process if that has no effect."""

    def __init__(self, loop: AbstractEventLoop, exit: Callable[[int], None]) -> None:
        self.loop = loop
        self.exit = exit
        self.forced: threading.Timer | None = None
        self.modes: list[object] | None = None

    def __enter__(self) -> Self:
        for number in ENDING:
            signal.signal(number, self._on_signal)
        if sys.platform != "win32":
            import termios

            self.modes = termios.tcgetattr(0)
            watcher = threading.Thread(target=self._watch, name="leaselock-terminal", daemon=True)
            watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        if self.forced is not None:
            self.forced.cancel()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.end(number)

    def _watch(self) -> None:
        """Wait until the terminal has hung up."""
        if sys.platform == "win32":
            return  # the end of the console ends the process
        poll = select.poll()
        poll.register(0, 0)
        # Where a terminal cannot be polled (macOS), there is only its signal.
        if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            self.end(int(signal.SIGHUP))

    def end(self, number: int) -> None:
        """End the screen, as that signal does. It may be called in any thread."""
        if self.forced is not None:
            return
        self.forced = threading.Timer(GRACE, self._force, (number,))
        self.forced.daemon = True
        self.forced.start()
        self.loop.call_soon_threadsafe(self.exit, number)

    def _force(self, number: int) -> None:
        if sys.platform != "win32" and self.modes is not None:
            import contextlib
            import termios

            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(0, termios.TCSANOW, self.modes)  # type: ignore[arg-type]
        os._exit(exit_codes.BY_SIGNAL + number)
