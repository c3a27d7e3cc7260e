"""Waits until a descriptor can be read or written: by `poll`, or by `select` on Windows.

`select` on other systems fails for descriptors above 1,023; on Windows it knows sockets only.
"""

from __future__ import annotations

import select
from typing import Any, Protocol

POLLIN: int = getattr(select, "POLLIN", 1)
POLLOUT: int = getattr(select, "POLLOUT", 4)


class Poller(Protocol):
    """What of `select.poll` is used."""

    def register(self, fd: Any, eventmask: int, /) -> object:
        """Wait for these events of a descriptor from now on."""

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """Wait at most *timeout* milliseconds; return the descriptors that are ready."""


class SelectPoller:
    """`select.poll`, made of `select.select`."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, fd: Any, eventmask: int, /) -> None:
        """Wait for these events of a descriptor from now on."""
        self._wanted[fd if isinstance(fd, int) else fd.fileno()] = eventmask

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """Wait at most *timeout* milliseconds; return the descriptors that are ready."""
        readers = [fd for fd, events in self._wanted.items() if events & POLLIN]
        writers = [fd for fd, events in self._wanted.items() if events & POLLOUT]
        seconds = None if timeout is None else timeout / 1000
        # Windows reports a connection that was refused as exceptional.
        read, written, failed = select.select(readers, writers, writers, seconds)
        return [
            (fd, events)
            for fd in self._wanted
            if (events := POLLIN * (fd in read) | POLLOUT * (fd in written or fd in failed))
        ]


def new_poller() -> Poller:
    """Return an object that waits for descriptors, with the methods of `select.poll`."""
    return select.poll() if hasattr(select, "poll") else SelectPoller()
