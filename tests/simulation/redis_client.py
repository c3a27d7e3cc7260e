"""The node of a simulated client of Redis: it carries out the production conversations.

Here as threads have it, with a link for each call and each waiter; for tasks see `redis_tasks`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.codec import codec
from leaselock.backends.redis.conversations import Conversations
from leaselock.backends.redis.steps import Guarded, Pause, Unreachable
from leaselock.core.backend import Acquire, AwaitWakeup, Release
from leaselock.core.effects import FOREVER
from leaselock.core.timing import pause
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.redis_net import Link, Network
    from tests.simulation.world import Machine

    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address, Command, Send, Steps, Waiting
    from leaselock.core.backend import Claim
    from leaselock.core.effects import Call

SOON = 0.001


class Conversation:
    """One request on its way, step by step."""

    def __init__(
        self,
        client: Client,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        self.client = client
        self.until = call.until
        self.wanted = wanted
        self.reply = reply
        self.turn = 0
        self.asked = 0.0
        self.link: Link | None = None
        self.request = call.request
        self.steps: Steps[Any] = client.talks.about(self.request, client.waits(self.request))

    def advance(self, step: Callable[[], Any]) -> None:
        """The client's part, unless it is dead, frozen, or does not want to know any more."""
        machine = self.client.machine
        thaw = machine.frozen_until - machine.world.time
        self.turn += 1
        if not machine.alive:
            return
        if thaw > 0.0:
            machine.world.after(thaw, lambda: self.advance(step))
        elif not self.wanted():
            self.steps.close()
            self.client.abandoned(self.link)
        else:
            self._advance(step)

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            wanted = step()
        except StopIteration as done:
            self.reply(self.client.answered(self.request, done.value))
        except Unreachable as error:
            self.reply(NotApplied(str(error)))
        except StoreError as error:
            self.reply(error.with_traceback(None))
        else:
            self._take(wanted)

    def _take(self, step: Send | Guarded | Pause) -> None:
        client = self.client
        if isinstance(step, Pause):
            seconds = pause(step.attempt + 2, 0.5)
            enough = client.machine.now() + seconds < self.until
            client.after(seconds if enough else 0.0, self.resume(enough))
            return
        client.after(max(SOON, self.until - client.machine.now()), self._too_late(self.turn))
        turn, self.asked = self.turn, client.machine.now()
        client.link(step.address, getattr(step, "waiting", None), partial(self._send, step, turn))

    def resume(self, outcome: object) -> Callable[[], None]:
        """Go on with an outcome, if nothing else has happened."""
        turn = self.turn

        def go() -> None:
            if self.turn != turn:
                return
            if isinstance(outcome, Exception):
                self.advance(lambda: self.steps.throw(outcome))
            else:
                self.advance(lambda: self.steps.send(outcome))

        return go

    def _too_late(self, turn: int) -> Callable[[], None]:
        def late() -> None:
            if self.turn != turn:
                self.client.net.world.quiet = True
                return
            self.client.abandoned(self.link, self.asked)
            self.resume(OutcomeUnknown("no answer in time"))()

        return late

    def _send(self, step: Send | Guarded, turn: int, link: Link | None, new: bool) -> None:
        if self.turn != turn:
            if link is not None:
                self.client.lay_down(link)
            return
        self.link = link
        if link is None:
            self.resume(Unreachable("nobody listens"))()
        elif isinstance(step, Guarded):
            link.ask(step.inspect, self._hear(partial(self._guarded, step, link), turn))
        else:
            waiting = step.waiting
            channels = self.client.listen(link, waiting, new) if waiting is not None else ()
            link.ask(
                unpacked(step.commands), self._hear(partial(self._done, step, link), turn), channels
            )

    def _hear(
        self, then: Callable[[list[Any]], None], turn: int
    ) -> Callable[[list[Any] | None], None]:
        def await_wakeup(replies: list[Any] | None) -> None:
            if self.turn == turn and replies is None:
                self.resume(OutcomeUnknown("the connection was lost"))()
            elif self.turn == turn and replies is not None:
                then(replies)

        return await_wakeup

    def _done(self, step: Send, link: Link, replies: list[Any]) -> None:
        if step.waiting is None:
            self._lay_down(link)
        self.resume(replies)()

    def _guarded(self, step: Guarded, link: Link, replies: list[Any]) -> None:
        if replies[-1] != step.value:
            link.ask([("UNWATCH",)], lambda _: None)
            self._finish(link, [*replies, None])
            return

        def carried_out(last: list[Any]) -> None:
            self._finish(link, [*replies, last[-1]])

        link.ask(step.transaction(), self._hear(carried_out, self.turn))

    def _lay_down(self, link: Link) -> None:
        self.client.lay_down(link)
        self.link = None

    def _finish(self, link: Link, replies: list[Any]) -> None:
        self._lay_down(link)
        self.resume(replies)()


def unpacked(commands: Sequence[Command] | bytes) -> Sequence[Command]:
    """One that is packed already is unpacked, for the model."""
    if not isinstance(commands, bytes):
        return commands
    reader = codec().Reader()
    reader.feed(commands)
    return [tuple(reader.gets())]


class Client:
    """What one machine has of links; here as threads have them."""

    def __init__(self, net: Network, machine: Machine, settings: Settings, form: str) -> None:
        self.net = net
        self.machine = machine
        self.talks = Conversations(settings, machine.now, self.address_of, form)
        self.after = net.world.after
        self.idle: dict[Address, list[Link]] = {}
        self.waiting: dict[str, Link] = {}
        self.channels: dict[str, tuple[str, ...]] = {}
        self.hearers: dict[str, Callable[[], None]] = {}

    def address_of(self, claim: Claim) -> str:
        """Each waiting thread has a channel of its own."""
        return claim.id

    def call(
        self, call: Call[Any], wanted: Callable[[], bool], reply: Callable[[object], None]
    ) -> None:
        """One request."""
        if isinstance(call.request, AwaitWakeup):
            self.await_wakeup(call.request.claim.id, call.until, reply)
        else:
            talk = Conversation(self, call, wanted, reply)
            talk.advance(lambda: next(talk.steps))

    def waits(self, request: object) -> bool:
        """Whether the claim stands in the queue."""
        return isinstance(request, Acquire) and request.claim.id in self.waiting

    def answered(self, request: object, answer: object) -> object:
        """What the thread is told."""
        if isinstance(request, Release):
            self.forget(request.claim.id)
        return answer

    def link(
        self,
        address: Address,
        waiting: Waiting | None,
        then: Callable[[Link | None, bool], None],
    ) -> None:
        """A link for a step; it says whether it must be told to listen."""
        if waiting is not None:
            link = self.waiting.get(waiting.claim.id)
            if link is not None and link.address == address:
                then(link, False)
                return
        idle = [link for link in self.idle.pop(address, []) if link.open]
        if idle:
            self.idle[address] = idle[1:]
            then(idle[0], True)
        else:
            self.net.connect(self.machine, address, self, lambda link: then(link, True))

    def listen(self, link: Link, waiting: Waiting, new: bool) -> tuple[str, ...]:
        """The claim's own link hears its channels before it asks."""
        holder = waiting.claim.id
        link.heard, link.holder = False, holder
        self.waiting[holder], self.channels[holder] = link, waiting.channels
        return waiting.channels if new else ()

    def lay_down(self, link: Link) -> None:
        """Keep it for the next question."""
        if link.open:
            self.idle.setdefault(link.address, []).append(link)

    def abandoned(self, link: Link | None, asked: float = 0.0) -> None:
        """A question was given up: its link is closed."""
        if link is not None and link not in self.idle.get(link.address, []):
            if self.waiting.get(link.holder) is link:
                del self.waiting[link.holder]
            link.close()

    def heard(self, link: Link, channel: str, word: str) -> None:
        """A message."""
        link.heard = True
        if self.waiting.get(link.holder) is link:
            self.talks.heard(word)
        self.wake(link.holder)

    def lost(self, link: Link) -> None:
        """A link has ended: whoever listened must look."""
        self.wake(link.holder)

    def wake(self, holder: str) -> None:
        """End a wait."""
        hearer = self.hearers.pop(holder, None)
        if hearer is not None:
            hearer()

    def deaf(self, holder: str) -> bool:
        """Whether there is nothing to wait for, or something was heard."""
        link = self.waiting.get(holder)
        if link is not None and not link.open:
            del self.waiting[holder]
        return link is None or link.heard or not link.open

    def await_wakeup(self, holder: str, until: float, reply: Callable[[object], None]) -> None:
        """Wait for a message, or for *until*."""
        if self.deaf(holder):
            reply(None)
            return
        hearer = self.hearers[holder] = partial(reply, None)

        def late() -> None:
            if self.hearers.get(holder) is hearer:
                self.wake(holder)

        if until < FOREVER:
            self.after(max(0.0, until - self.machine.now()), late)

    def forget(self, holder: str) -> None:
        """The claim waits no more: its link can serve others."""
        self.talks.forget(holder)
        self.wake(holder)
        link = self.waiting.pop(holder, None)
        channels = self.channels.pop(holder, ())
        if link is not None and link.open:
            link.holder = ""
            link.unsubscribe(channels)
            self.lay_down(link)

    def wake_all(self) -> None:
        """Wake every waiter."""
        for holder in list(self.hearers):
            self.wake(holder)
