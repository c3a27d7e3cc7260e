"""A connection of many tasks: what counts against the time of a request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.redis import multiplexed
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.messages import SendInTime
from leaselock._backends.redis.multiplexed import MultiplexedConnection
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS = 60
# A request has this long, in seconds; the server takes less for each reply.
TIME, EACH = 1.0, 0.2


class Wire(asyncio.Transport):
    """A transport that sends nowhere."""

    def write(self, data: Any) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


class Fixture:
    """An open connection, the futures of its requests, and a clock."""

    def __init__(self, requests: int) -> None:
        self.time = 100.0
        settings = settings_of("redis://nowhere")
        self.connection = MultiplexedConnection(
            settings, settings.addresses[0], lambda: self.time, lambda connection: None
        )
        self.connection.loop = asyncio.get_running_loop()
        self.connection.transport, self.connection.open = Wire(), True
        self.asked: list[asyncio.Future[Any]] = [
            self.connection._send(b"*1", 1, (), self.time + TIME) for _ in range(requests)
        ]

    def receive(self, data: bytes, seconds: float = EACH) -> None:
        """Receive something after that many seconds; then the deadlines are checked."""
        self.time += seconds
        self.connection.data_received(data)
        self.connection._check_deadlines()

    def failed(self) -> list[asyncio.Future[Any]]:
        """Return the requests that have failed."""
        return [one for one in self.asked if one.done() and one.exception()]


def in_loop(play: Callable[[Fixture], None], requests: int = REQUESTS) -> None:
    """Play it in a loop, whose timers are of no use: the clock is that of the fixture."""

    async def fixture() -> None:
        played = Fixture(requests)
        play(played)
        played.connection.connection_lost(None)
        for one in played.asked:
            one.exception()  # all have ended

    asyncio.run(fixture())


def test_requests_behind_others_that_are_answered_do_not_fail() -> None:
    """The last reply of a burst comes long after its time."""

    def play(fixture: Fixture) -> None:
        for _ in range(REQUESTS):
            fixture.receive(b":1\r\n")
        assert fixture.time - 100.0 > TIME + multiplexed.FLOWING
        assert [one.result() for one in fixture.asked] == [[1]] * REQUESTS

    in_loop(play)


def test_requests_fail_in_time_once_the_server_is_silent() -> None:
    def play(fixture: Fixture) -> None:
        for _ in range(10):
            fixture.receive(b":1\r\n")
        assert not fixture.failed()
        fixture.time += multiplexed.FLOWING
        fixture.connection._check_deadlines()
        assert len(fixture.failed()) == REQUESTS - 10
        with pytest.raises(OutcomeUnknown, match="in time"):
            fixture.asked[-1].result()

    in_loop(play)


def test_a_renewal_behind_others_fails_before_its_lease_ends() -> None:
    """The renewer, which waits for it, would otherwise report no loss meanwhile."""

    def play(fixture: Fixture) -> None:
        # A renewal has a third of what is left of the lease.
        renewal: Any = fixture.connection.call(SendInTime(b"*1", 1, ()), fixture.time + TIME)
        fixture.asked.append(renewal)
        while fixture.time < 100.0 + 3 * TIME - EACH:
            fixture.receive(b":1\r\n")
        assert fixture.failed() == [renewal]

    in_loop(play)


def test_a_reply_that_arrives_in_pieces_is_no_answer() -> None:
    def play(fixture: Fixture) -> None:
        fixture.receive(b"$100\r\n")
        while fixture.time < 100.0 + TIME:
            fixture.receive(b"x")
        assert len(fixture.failed()) == REQUESTS

    in_loop(play)


def test_replies_to_others_do_not_prolong_a_request_without_end() -> None:
    def play(fixture: Fixture) -> None:
        latest = 100.0 + TIME + multiplexed.GRACE
        while fixture.time < latest:
            assert not fixture.failed()
            fixture.receive(b":1\r\n")
        assert fixture.asked[-1] in fixture.failed()

    in_loop(play, 200)
