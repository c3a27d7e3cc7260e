"""An undone grant is never valid again, however late the undo arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server
from verification.models.sides import claim_of

from leaselock._backends.redis.keys import owner_of, tombstone
from leaselock._core.contract.backend import Acquire, Busy, Grant
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.redis.messages import Address, Send

CLAIM = claim_of("0" * 32, "a", 1, 30.0)


class Fixture:
    """One client, on a server where *replicas* confirm."""

    def __init__(self) -> None:
        self.micros = 1_700_000_000_000_000
        self.replicas = 0
        self.server = Server(self._time, lambda wanted: self.replicas)
        self.line = Connection(self.server, lambda channel, word: None)
        self.runner = Runner("redis://nowhere?replicas=1", self._send)
        self.backend = self.runner.store.backend("hash")
        self.lost: Callable[[Send], bool] = lambda message: False
        self.late: list[Send] = []

    def _time(self) -> int:
        self.micros += 1
        return self.micros

    def _send(self, address: Address, message: Send) -> list[Any]:
        if self.lost(message):
            self.late.append(message)
            raise OutcomeUnknown("no answer")
        return self.deliver(message)

    def deliver(self, message: Send) -> list[Any]:
        return [self.line.do(command) for command in commands_of(message)]

    def ask(
        self, lost: Callable[[Send], bool] = lambda message: False, *, wait: bool = False
    ) -> object:
        """Try to acquire the lock; *lost* commands are not delivered yet."""
        self.lost = lost
        try:
            return self.runner.run(self.backend.request(Acquire(CLAIM, wait), 0.0))
        except StoreError as error:
            return error

    def held(self) -> bool:
        return b"lock:a" in self.server.data.values


def gives_back(message: Send) -> bool:
    # Only the undo is sent with the key of the lock and without a WAIT.
    return not any(command[0] == b"WAIT" for command in commands_of(message))


def test_after_a_failed_undo_a_repeated_request_is_not_granted() -> None:
    fixture = Fixture()
    assert isinstance(fixture.ask(), NotApplied)  # the scripts are loaded from now on
    assert isinstance(fixture.ask(gives_back), OutcomeUnknown)
    fixture.replicas = 1
    answers = [fixture.ask() for _ in range(2)]
    granted = [answer for answer in answers if isinstance(answer, Grant)]
    assert granted
    fixture.deliver(fixture.late[0])
    assert fixture.held()


def test_after_a_confirmed_undo_the_request_may_be_repeated() -> None:
    fixture = Fixture()
    assert isinstance(fixture.ask(), NotApplied)
    assert not fixture.held()
    fixture.replicas = 1
    assert isinstance(fixture.ask(), Grant)
    assert fixture.held()


def test_a_claim_released_with_a_tombstone_does_not_wait() -> None:
    fixture = Fixture()
    fixture.line.do(("SET", tombstone("lock:a", owner_of(CLAIM.id)), "", "PX", 1000))
    assert isinstance(fixture.ask(), Busy)
    assert "given up" in str(fixture.ask(wait=True))
