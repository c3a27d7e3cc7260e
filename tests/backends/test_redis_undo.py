"""A grant that was given back is never one again, however late what gives it back arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.worlds import claim_of
from tests.simulation.redis_client import unpacked

from leaselock.backends.redis.conversations import Conversations
from leaselock.backends.redis.model import Connection, Server
from leaselock.backends.redis.settings import settings_of
from leaselock.backends.redis.steps import Pause, Send
from leaselock.core.backend import Acquire, Busy, Grant
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.steps import Steps

CLAIM = claim_of("0" * 32, "a", 1, 30.0)


class Scene:
    """One client, on a server whose replicas confirm what *replicas* says."""

    def __init__(self) -> None:
        self.micros = 1_700_000_000_000_000
        self.replicas = 0
        self.server = Server(self._time, lambda wanted: self.replicas)
        self.line = Connection(self.server, lambda channel, word: None)
        url = settings_of("redis://nowhere?replicas=1")
        self.talks = Conversations(url, lambda: 0.0, lambda claim: claim.id, "hash")
        self.late: list[Send] = []

    def _time(self) -> int:
        self.micros += 1
        return self.micros

    def deliver(self, step: Send) -> list[Any]:
        return [self.line.do(command) for command in unpacked(step.commands)]

    def ask(
        self, lost: Callable[[Send], bool] = lambda step: False, *, wait: bool = False
    ) -> object:
        """Try; what is *lost* is delivered by nobody yet."""
        steps: Steps[Any] = self.talks.about(Acquire(CLAIM, wait), False)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    step = steps.send(False)
                    continue
                assert isinstance(step, Send)
                if lost(step):
                    self.late.append(step)
                    step = steps.throw(OutcomeUnknown("no answer"))
                else:
                    step = steps.send(self.deliver(step))
        except StopIteration as done:
            return done.value
        except StoreError as error:
            return error

    def held(self) -> bool:
        return b"a" in self.server.data.values


def gives_back(step: Send) -> bool:
    # Nothing else is sent with the key of the lock and without a WAIT.
    return not any(command[0] == "WAIT" for command in unpacked(step.commands))


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
    grave = "leaselock:grave:{a}:" + "-".join(("0" * 8, "0" * 4, "0" * 4, "0" * 4, "0" * 12)) + ":1"
    scene.line.do(("SET", grave, "", "PX", 1000))
    assert isinstance(scene.ask(), Busy)
    assert "given up" in str(scene.ask(wait=True))
