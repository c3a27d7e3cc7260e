"""The rules of a lock's row, by themselves: who is watched, and who is notified."""

from __future__ import annotations

from leaselock.backends.memory.store import Table
from leaselock.core.backend import Acquire, Busy, Claim, Grant, Release


class Clients:
    """A table, its dead clients, and the notifications and watches that it asked for."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.notified: list[tuple[str, str]] = []
        self.watched: list[tuple[str, str]] = []
        self.table = Table(
            lambda: 1.0,
            lambda: 1,
            lambda client: client not in self.dead,
            lambda client, claim_id: self.notified.append((client, claim_id)),
            lambda client, watched: self.watched.append((client, watched)),
        )

    def acquire(self, client: str) -> object:
        return self.table.answer(client, Acquire(claim_of(client), True))


def claim_of(client: str) -> Claim:
    return Claim("a", f"{client}:1", client, 30.0, "{}", 0.0)


def test_a_waiter_watches_the_next_living_one_ahead() -> None:
    clients = Clients()
    assert isinstance(clients.acquire("holder"), Grant)
    for client in ("one", "two", "three"):
        assert isinstance(clients.acquire(client), Busy)
    assert clients.watched == [("one", "holder"), ("two", "one"), ("three", "two")]
    clients.dead = {"one", "two"}
    assert isinstance(clients.acquire("three"), Busy)
    assert clients.watched[3:] == [("three", "holder")]
    assert list(clients.table.entries["a"].queue) == ["three:1"]


def test_the_waiter_behind_one_that_leaves_the_queue_is_notified() -> None:
    clients = Clients()
    for client in ("holder", "one", "two"):
        clients.acquire(client)
    left = clients.table.answer("one", Release(claim_of("one"), False))
    assert left == ("waiting", ())
    assert clients.notified == [("two", "two:1")]
    left = clients.table.answer("two", Release(claim_of("two"), False))
    assert left == ("waiting", ())
    assert clients.notified == [("two", "two:1")]
