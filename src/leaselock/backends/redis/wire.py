"""One connection for all tasks of a client: what is asked in one turn of the loop leaves together.

redis-py makes the connection; then its transport is ours. Replies come in the order of the
commands, so one whose asker has gone away is read and dropped, and no other is mistaken for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.redis.codec import ENDED, MESSAGES, codec, confirms, packed, spoils
from leaselock.backends.redis.connecting import kind_for, refusal, terms_for
from leaselock.backends.redis.steps import NONSENSE, absurd
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.codec import Confirmation
    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address

# Replies that come at least so often, in seconds, are a server at work.
FLOWING = 0.25
# How much longer than it may take a reply that is behind others can take while those come.
GRACE = 3.0
# Who has no time left has that much: a loop that was busy for long is not a silent server.
LEAST = 0.25
# Fewer questions than these leave a turn of the loop in no time.
MANY = 1000


class Question:
    """Some commands that were sent, and the replies that are missing."""

    __slots__ = ("asked", "count", "future", "replies", "until")

    def __init__(
        self, future: asyncio.Future[list[Any]], count: int, asked: float, until: float
    ) -> None:
        self.future = future
        self.count = count
        self.asked = asked
        self.until = until
        self.replies: list[Any] = []


class Wire(asyncio.Protocol):
    """The connection to one server."""

    def __init__(
        self,
        address: Address,
        now: Callable[[], float],
        heard: Callable[[Wire, str, str], None],
        lost: Callable[[Wire], None],
        ended: Callable[[Wire, str], None],
    ) -> None:
        self.address = address
        self.now = now
        self.heard = heard
        self.lost = lost
        self.ended = ended
        self.loop = asyncio.get_running_loop()
        self.guard = asyncio.Lock()
        self.reader = codec().Reader()
        self.pushed = codec().PushNotification
        # What was sent, in order: a subscription has a confirmation or an error, no reply.
        self.questions: deque[Question | Confirmation] = deque()
        self.refused: dict[str, Exception] = {}
        self.outgoing: list[bytes] = []
        self.last_heard = now()
        self.unsent = 0
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = float("inf")
        self.open = True
        # A subscription was said to be over that we, too, had ended (`spoils`).
        self.over = False

    async def connect(self, settings: Settings, until: float) -> None:
        """Let redis-py connect, and take over its transport."""
        module = library("redis.asyncio.connection", "redis")
        terms = terms_for(settings, self.address, max(0.001, until - self.now()))
        connection = kind_for(module, settings, self.address)(**terms)
        try:
            async with asyncio.timeout(max(0.001, until - self.now())):
                await connection.connect()
        except (library("redis.exceptions", "redis").RedisError, OSError) as error:
            raise refusal(self.address, error) from error
        writer, connection._writer, connection._reader = connection._writer, None, None
        self.transport: Any = writer.transport
        writer._transport = _Closing()
        self.transport.set_protocol(self)

    def ask(self, packed: bytes, count: int, until: float) -> asyncio.Future[list[Any]]:
        """Send commands; the future has their replies."""
        future: asyncio.Future[list[Any]] = self.loop.create_future()
        if not self.open:
            future.set_exception(OutcomeUnknown(f"the connection to {self.address} was lost"))
            return future
        now = self.now()
        if until < now + LEAST:
            until = now + LEAST
        self.questions.append(Question(future, count, now, until))
        self.unsent += 1
        self._write(packed)
        if until < self.timer_at:
            self._watch(until)
        return future

    def tell(self, verb: str, channel: str) -> None:
        """Begin or end a subscription; `refused` tells of those that were not allowed."""
        self.refused.pop(channel, None)
        self.questions.append((verb, channel))
        self._write(packed([(verb, channel)]))

    def _write(self, packed: bytes) -> None:
        if not self.outgoing:
            self.loop.call_soon(self._flush)
        self.outgoing.append(packed)

    def _flush(self) -> None:
        outgoing, self.outgoing = self.outgoing, []
        unsent, self.unsent = self.unsent, 0
        if self.open and outgoing:
            self.transport.write(b"".join(outgoing))
            if unsent > MANY:
                self._excuse(unsent)

    def _excuse(self, count: int) -> None:
        """The time that so many took of this loop before they were sent is not the server's."""
        questions = [q for q in list(self.questions)[-count:] if isinstance(q, Question)]
        late = self.now() - questions[0].asked if questions else 0.0
        for question in questions:
            question.until += late

    def _watch(self, until: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = until
        self.timer = self.loop.call_later(max(0.0, until - self.now()), self._check)

    def _check(self) -> None:
        """Tell whoever has waited long enough that nothing is known; the reply may still come.

        While replies come, those to many questions of one turn may take a little longer.
        """
        now = self.now()
        self.timer, self.timer_at = None, float("inf")
        soonest = float("inf")
        flowing = now - self.last_heard < FLOWING
        for question in self.questions:
            if isinstance(question, tuple) or question.future.done():
                continue
            if question.until > now:
                soonest = min(soonest, question.until)
                continue
            if flowing and now < question.until + GRACE:
                soonest = min(soonest, now + FLOWING / 4)
                continue
            question.future.set_exception(OutcomeUnknown(f"{self.address} did not answer in time"))
            if self.last_heard < question.asked:
                self._give_up()
                return
        if soonest < float("inf"):
            self._watch(soonest)

    def _give_up(self) -> None:
        """Nothing has come for a whole question's time: the line may be dead without a word, and
        whoever asks again shall have another one.
        """
        self.open = False
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Replies go to the questions in order, messages to whom they are for."""
        self.last_heard = self.now()
        if data[7:8].isdigit() and absurd(data, self.reader):
            self._give_up()
            return
        self.reader.feed(data)
        gets, pushed = self.reader.gets, self.pushed
        try:
            while (reply := gets()) is not False:
                if type(reply) is pushed:
                    self._pushed(reply)
                else:
                    self._replied(reply)
        except (codec().HiredisError, *NONSENSE):
            # No server says that. What follows on this line may be anybody's answer.
            self._give_up()

    def _replied(self, reply: Any) -> None:
        question = self.questions[0]
        if isinstance(question, tuple):
            self.questions.popleft()
            if "UN" not in question[0]:
                self.refused[question[1]] = reply
            return
        if self.over:
            self.over = spoils(reply)
        replies = question.replies
        replies.append(reply)
        if len(replies) == question.count:
            self.questions.popleft()
            if not question.future.done():
                question.future.set_result(replies)

    def _pushed(self, push: Sequence[Any]) -> None:
        if len(push) != 3:
            return
        if push[0] in MESSAGES:
            self.heard(self, push[1].decode(), push[2].decode("utf-8", "replace"))
            return
        question = self.questions[0] if self.questions else None
        if isinstance(question, tuple) and confirms(push, question):
            self.questions.popleft()
            self.over = push[0] == ENDED
        elif push[0] == ENDED:
            self.ended(self, push[1].decode())

    def eof_received(self) -> bool:
        """The server has closed; so do we."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """What was asked last may or may not have been done."""
        self.open = False
        questions, self.questions = self.questions, deque()
        for question in questions:
            if not isinstance(question, tuple) and not question.future.done():
                question.future.set_exception(
                    OutcomeUnknown(
                        f"the connection to {self.address} was lost: {error or 'closed'}"
                    )
                )
        if self.timer is not None:
            self.timer.cancel()
        self.lost(self)

    def close(self) -> None:
        """End the connection, once what was written is out."""
        self.open = False
        self.transport.close()

    def abandon(self) -> None:
        """Let go of the descriptor alone: the loop is another process's, or closed."""
        self.open = False
        _let_go(self.transport)


class _Closing:
    """What a stream's writer is left with, which would else close its transport at its end."""

    def is_closing(self) -> bool:
        return True


def _let_go(transport: Any) -> None:
    """Close the socket of a transport whose loop cannot be asked to do it any more.

    asyncio has no way for that. Its transports would warn, and close the number of their
    descriptor again when they are collected, whoever has it by then.
    """
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if below is not None:
        transport._closed = True  # this one wraps another, which has the socket
        transport = below
    sock = getattr(transport, "_sock", None)
    if sock is not None:
        transport._sock = None
        sock.close()
