"""How long a lock is held and waited for is counted by the clock of the store, not by that of the
machine on which an operator looks at it.
"""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock
from leaselock._cli import formatting
from leaselock._cli.listing import table_row
from leaselock._cli.show import lock_lines
from leaselock._cli.top_text import CELLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock import LockInfo

WRONG = 7200.0


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "redis":
        with Redis() as server:
            yield server.url
    else:
        yield request.getfixturevalue("postgres").url


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_a_wrong_clock_of_the_machine_changes_nothing(
    url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leaselock.Client(url) as client:

        def mutex() -> leaselock.Lock | leaselock.Semaphore:
            return client.lock("a") if kind == "lock" else client.semaphore("a", 1)

        def once() -> None:
            with mutex():
                pass

        with mutex():
            waiter = threading.Thread(target=once)
            waiter.start()
            eventually(lambda: len(mutex().waiters()) == 1)
            for ahead in (WRONG, -WRONG):
                clock = SimpleNamespace(time=lambda ahead=ahead: time.time() + ahead)
                monkeypatch.setattr(formatting, "time", clock)
                (lock,) = client.locks("a")
                shown(lock)
        waiter.join()


def shown(lock: LockInfo) -> None:
    """The times are neither hours nor nothing at all."""
    assert lock.holder is not None
    assert lock.holder.age is not None
    assert 0.0 < lock.holder.age < WRONG / 2
    assert "h" not in table_row(lock)[2]
    assert CELLS["OLDEST"](lock) != "2h00m"
    text = "\n".join(lock_lines(lock))
    assert "2h0" not in text
