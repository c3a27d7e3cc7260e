"""Threads for what runs beside: one that has done its work waits a moment for more of it.

A process of the core that is spawned often, and soon over, would cost a new thread each time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.effects import Process

# How long a thread waits for more to do.
IDLE = 1.0

Box = SimpleQueue["tuple[Process[None], str] | None"]


class ThreadPool:
    """The background threads of one driver."""

    def __init__(self, run: Callable[[Process[None]], object]) -> None:
        self.run = run
        self.threads: set[threading.Thread] = set()
        # Where those who wait can be given work; whoever takes a box out owes it something.
        self.idle: list[Box] = []
        self.leaving = False
        self.hiring = threading.Lock()

    def start(self, process: Process[None], name: str) -> None:
        """Run *process* beside this thread; it is closed if no thread can be had."""
        try:
            box = self.idle.pop()
        except IndexError:
            self._hire(process, name)
        else:
            box.put((process, name))

    def _hire(self, process: Process[None], name: str) -> None:
        thread = threading.Thread(
            target=self._work, args=(process,), name=f"leaselock-{name}", daemon=True
        )
        try:
            # Who dismisses the crew in this moment must know of it, and be able to wait for it.
            with self.hiring:
                thread.start()
                self.threads.add(thread)
        except BaseException:
            process.close()
            raise

    def _work(self, process: Process[None]) -> None:
        thread = threading.current_thread()
        with self.hiring:
            pass  # until it is known
        try:
            self.run(process)
            while work := self._more():
                thread.name = f"leaselock-{work[1]}"
                self.run(work[0])
        finally:
            self.threads.discard(thread)

    def _more(self) -> tuple[Process[None], str] | None:
        box: Box = SimpleQueue()
        self.idle.append(box)
        try:
            return box.get(timeout=0.0 if self.leaving else IDLE)
        except Empty:
            pass
        try:
            self.idle.remove(box)
        except ValueError:
            # Somebody took it out in this moment, and puts something in.
            return box.get()
        return None

    def dismiss(self, patience: float) -> None:
        """Send those who wait home, and wait for all to end their work, each for so long."""
        self.leaving = True
        while self.idle:
            with suppress(IndexError):
                self.idle.pop().put(None)
        with self.hiring:
            threads = list(self.threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(patience)
        self.leaving = False
