"""A grant that was given back is never one again, however late what gives it back arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.redis_runner import Runner, commands_of
from tests.models.redis_server import Connection, Server
from tests.models.worlds import claim_of

from leaselock.backends.redis.keys import owner_of, tombstone
from leaselock.core.backend import Acquire, Busy, Grant
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.messages import Address, Send

CLAIM = claim_of("0" * 32, "a", 1, 30.0)


class Scene:
    """One client, on a server whose replicas confirm what *replicas* says."""

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
        """Try; what is *lost* is not delivered yet."""
        self.lost = lost
        try:
            return self.runner.run(self.backend.carry_out(Acquire(CLAIM, wait), 0.0))
        except StoreError as error:
            return error

    def held(self) -> bool:
        return b"a" in self.server.data.values


def gives_back(message: Send) -> bool:
    # Nothing else is sent with the key of the lock and without a WAIT.
    return not any(command[0] == b"WAIT" for command in commands_of(message))


def test_a_grant_that_was_given_back_in_vain_is_not_taken_when_asked_for_again() -> None:
    scene = Scene()
    assert isinstance(scene.ask(), NotApplied)  # the scripts are loaded from now on
    assert isinstance(scene.ask(gives_back), OutcomeUnknown)
    scene.replicas = 1
    answers = [scene.ask() for _ in range(2)]
    granted = [answer for answer in answers if isinstance(answer, Grant)]
    assert granted
    scene.deliver(scene.late[0])
    assert scene.held()


def test_what_was_given_back_for_sure_may_be_asked_for_again() -> None:
    scene = Scene()
    assert isinstance(scene.ask(), NotApplied)
    assert not scene.held()
    scene.replicas = 1
    assert isinstance(scene.ask(), Grant)
    assert scene.held()


def test_a_claim_that_was_given_up_for_good_waits_for_nothing() -> None:
    scene = Scene()
    scene.line.do(("SET", tombstone("a", owner_of(CLAIM.id)), "", "PX", 1000))
    assert isinstance(scene.ask(), Busy)
    assert "given up" in str(scene.ask(wait=True))
