"""Waiting for a lock with somebody looking on: who has it, and whose turn it is."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import holdfast
from holdfast.cli.show import who
from holdfast.cli.store import timeout_of
from holdfast.cli.words import harmless, length

if TYPE_CHECKING:
    import argparse

    from holdfast import Holder, Lease, Lock

FIRST_LINE = 1.0
NEXT_LINE = 60.0


class Patience:
    """One wait for one lock."""

    def __init__(self, lock: Lock, options: argparse.Namespace) -> None:
        self.lock = lock
        self.options = options
        self.over = threading.Event()
        self.terminal = sys.stderr.isatty()

    def acquire(self) -> Lease | None:
        """The lease; None, and a message that names the holder, when it is busy."""
        timeout = timeout_of(self.options)
        lease = self.lock.acquire(timeout=0)
        if lease is None and timeout != 0:
            lease = self._wait(timeout)
        if lease is None and not self.options.quiet:
            self._say(f"{self._busy(timeout)}")
        return lease

    def _wait(self, timeout: float | None) -> Lease | None:
        began = time.monotonic()
        watcher = threading.Thread(target=self._watch, args=(began,), daemon=True)
        if not self.options.quiet:
            watcher.start()
        try:
            lease = self.lock.acquire(timeout=timeout)
        finally:
            self.over.set()
        if lease is not None and self.options.verbose:
            self._say(f"waited {length(time.monotonic() - began)} for {self.lock.name!r}")
        return lease

    def _watch(self, began: float) -> None:
        pause = FIRST_LINE
        while not self.over.wait(pause):
            try:
                holder, waiters = self.lock.holder(), self.lock.waiters()
            except holdfast.HoldfastError:
                return  # the wait itself meets the same error, and tells it
            if not self.over.is_set():
                self._show(holder, waiters, time.monotonic() - began)
            pause = FIRST_LINE if self.terminal else NEXT_LINE

    def _show(self, holder: Holder | None, waiters: list[Holder], waited: float) -> None:
        mine = [i for i, waiter in enumerate(waiters, 1) if waiter.pid == os.getpid()]
        place = f", place {mine[0]} of {len(waiters)}" if mine else ""
        by = f", held by {who(holder)}" if holder is not None else ""
        line = f"waiting for {self.lock.name!r} for {length(waited)}{by}{place}"
        if self.terminal:
            print(f"\r\x1b[Kholdfast: {line}", end="", file=sys.stderr, flush=True)
        else:
            self._say(line)

    def _busy(self, timeout: float | None) -> str:
        waited = f" after {length(timeout)}" if timeout else ""
        holder = self.lock.holder()
        if holder is None:
            return f"{self.lock.name!r} was busy{waited}; it has become free just now"
        ago = length(time.time() - holder.since)
        return f"{self.lock.name!r} is busy{waited}: held by {harmless(str(holder))} for {ago}"

    def _say(self, text: str) -> None:
        start = "\r\x1b[K" if self.terminal else ""
        print(f"{start}holdfast: {text}", file=sys.stderr, flush=True)
