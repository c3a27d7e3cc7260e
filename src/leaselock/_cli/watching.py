"""Waiting for changes of a lock until a signal or a deadline ends it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaselock import LeaselockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock import Client, Lock
    from leaselock._cli.signals import Signals


def wait_until_held(client: Client, lock: Lock, signals: Signals, deadline: float) -> bool:
    """Wait until the lock is held; False at *deadline*, a time of the monotonic clock."""
    with ended_by(client, signals, deadline):
        held = any(change.holder is not None for change in lock.watch())
    signals.check()
    return held


@contextmanager
def ended_by(client: Client, signals: Signals, deadline: float) -> Iterator[None]:
    """Close the client at a signal that ends the command or at *deadline*, which ends a wait."""
    finished = False

    def attend() -> None:
        while not finished and signals.ending is None and time.monotonic() < deadline:
            signals.wait(deadline - time.monotonic())
        if not finished:
            client.close()

    thread = threading.Thread(target=attend, name="leaselock-attendant", daemon=True)
    thread.start()
    try:
        yield
    except LeaselockError:
        if signals.ending is None and time.monotonic() < deadline:
            raise
    finally:
        finished = True
        signals.wake()
        thread.join()
