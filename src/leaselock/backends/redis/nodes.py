"""The store for threads: lines to servers, each used by one call or one waiting thread at a time.

A waiting thread reads its own line, so a message goes from the server to whom it is for, with no
listener in between.
"""

from __future__ import annotations

import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from leaselock.backends import Opened, check_protocol
from leaselock.backends.redis.codec import counted, packed
from leaselock.backends.redis.conversations import Conversations
from leaselock.backends.redis.forms import FORMS
from leaselock.backends.redis.hash import VOTE
from leaselock.backends.redis.line import Line
from leaselock.backends.redis.places import Wanted
from leaselock.backends.redis.protocol import CAPABILITIES, RESERVING, Handed, Polled
from leaselock.backends.redis.settings import settings_of
from leaselock.backends.redis.steps import (
    NONSENSE,
    Guarded,
    Pause,
    Send,
    Unreachable,
    senseless,
    unheard,
)
from leaselock.core.backend import Acquire, AwaitWakeup, Release
from leaselock.core.timing import pause
from leaselock.errors import NotApplied, UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.codec import Confirmation
    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address, Steps, Waiting
    from leaselock.core.backend import Claim

PROTOCOLS = ("hash", "string", *FORMS)
UNSAFE = 'protocol "{}" is kept for programs that use it: {}. The default, "hash", cannot do that'


class Store:
    """Carries out requests, each in the thread that asks."""

    def __init__(self, settings: Settings, now: Callable[[], float], form: str) -> None:
        self.settings = settings
        self.form = form
        self.now = now
        self.begin()

    def begin(self) -> None:
        """Nothing is connected, and nobody waits."""
        self.lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self.idle: dict[Address, list[Line]] = {}
        self.waiting: dict[str, Line] = {}
        self.hearing: set[str] = set()
        self.channels: dict[str, list[Confirmation]] = {}
        self.wanted = Wanted(self.now)
        self.talks = Conversations(self.settings, self.now, _address_of, self.form)

    def call(self, request: object, until: float) -> object:
        """The answer of the store; Refused or Unknown when there is none by *until*."""
        if isinstance(request, AwaitWakeup):
            self._hear(request.claim, until)
            return None
        waits = bool(self.waiting or self.wanted.locks) and self._waits(request)
        answer = None if waits else self._shortly(request, until)
        if answer is None:
            answer = self._converse(self.talks.about(request, waits), until)
        if self.channels and isinstance(request, Release):
            self.forget(request.claim.id)
        return answer

    def _waits(self, request: object) -> bool:
        """Whether the claim stands in the queue, or should at once, for the lock is much wanted."""
        if not isinstance(request, Acquire):
            return False
        claim = request.claim
        if claim.id in self.waiting:
            return True
        return request.wait and self.wanted.take(claim.name)

    def _shortly(self, request: object, until: float) -> object | None:
        """The answer, if one step over a line that is idle is enough for it."""
        brief = self.talks.brief(request)
        line = None if brief is None else self._idle(brief.address)
        if brief is None or line is None:
            return None
        (reply,) = self._over(line, brief, until)
        try:
            answer = self.talks.settled(request, reply)
        except NONSENSE as error:
            raise senseless(error) from error
        if answer is None:
            return self._converse(self.talks.further(request, reply), until)
        return answer

    def _converse(self, steps: Steps[Any], until: float) -> object:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._take(step, until)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            return done.value
        except Unreachable as error:
            raise NotApplied(str(error)) from error
        except NONSENSE as error:
            raise senseless(error) from error

    def _take(self, step: Send | Guarded | Pause, until: float) -> object:
        if isinstance(step, Pause):
            return self._pause(step.attempt, until)
        if isinstance(step, Send) and step.waiting is not None:
            return self._send_waiting(step, step.waiting, until)
        return self._over(self._line(step.address, until), step, until)

    def _over(self, line: Line, step: Send | Guarded, until: float) -> list[Any]:
        try:
            if isinstance(step, Guarded):
                replies = line.guarded(step, until)
            else:
                replies = line.ask(packed(step.commands), counted(step.commands), until)
        except BaseException:
            line.close()
            raise
        self._lay_down(line)
        return replies

    def _lay_down(self, line: Line) -> None:
        """Keep a line for the next question; not one that still listens to something, nor one
        from before the store was closed.
        """
        if line.spoiled or line.pool is not self.idle:
            line.close()
        else:
            self.idle.setdefault(line.address, []).append(line)

    def _pause(self, attempt: int, until: float) -> bool:
        seconds = pause(attempt + 2, 0.5)
        if self.now() + seconds >= until:
            return False
        # A server that is starting, or is not the master yet, does not say when it is ready.
        time.sleep(seconds)
        return True

    def _idle(self, address: Address) -> Line | None:
        idle = self.idle.get(address)
        while idle:
            try:
                line = idle.pop()
            except IndexError:
                break  # another thread was faster
            if line.fresh():
                return line
            line.close()
        return None

    def _line(self, address: Address, until: float) -> Line:
        line = self._idle(address)
        if line is not None:
            return line
        pool = self.idle
        line = Line(self.settings, address, self.now, until)
        line.pool = pool
        self.lines.add(line)
        return line

    def _send_waiting(self, step: Send, waiting: Waiting, until: float) -> object:
        """Over the waiter's own line, which listens before it asks."""
        holder = waiting.claim.id
        line = self.waiting.pop(holder, None)
        subscriptions: list[Confirmation] = []
        if line is None or line.address != step.address:
            if line is not None:
                line.close()
            line = self._line(step.address, until)
            subscriptions = _all("SUBSCRIBE", waiting.channels, waiting.sharded)
        line.heard = False
        try:
            commands = packed(subscriptions) + packed(step.commands)
            replies = line.ask(commands, counted(step.commands), until, subscriptions)
        except BaseException:
            line.close()
            raise
        if line.refusal is not None:
            line.close()
            return unheard(step.address, line.refusal, len(replies))
        self.waiting[holder] = line
        self.channels[holder] = _all("UNSUBSCRIBE", waiting.channels, waiting.sharded)
        return replies

    def _hear(self, claim: Claim, until: float) -> None:
        line = self.waiting.get(claim.id)
        if line is None:
            return
        self.wanted.note(claim.name)
        # A message that came before the last answer is no news: to look is all it can be good for.
        line.word = ""
        self.hearing.add(claim.id)
        lasts = False
        try:
            lasts = line.wait(until) and self.waiting.get(claim.id) is line
        finally:
            self.hearing.discard(claim.id)
            if not lasts:
                if self.waiting.get(claim.id) is line:
                    del self.waiting[claim.id]
                line.close()
        if lasts and line.word:
            self.talks.heard(line.word)

    def forget(self, holder: str) -> None:
        """The claim waits no more: its line can serve others."""
        self.talks.forget(holder)
        line = self.waiting.pop(holder, None)
        subscribed = self.channels.pop(holder, [])
        if line is None:
            return
        if holder in self.hearing:
            line.cut()  # another thread hears it yet, and closes it
        elif line.tell(packed(subscribed), subscribed):
            self._lay_down(line)
        else:
            line.close()

    def wake_all(self) -> None:
        """Wake every waiting thread: the client is closing."""
        for line in list(self.waiting.values()):
            line.cut()

    def interrupt(self) -> None:
        """No call lasts beyond its deadline but those that wait."""
        self.wake_all()

    def close(self) -> None:
        """Close all lines."""
        lines = [*self.waiting.values(), *(line for idle in self.idle.values() for line in idle)]
        self.begin()
        for line in lines:
            line.close()

    def after_fork(self) -> None:
        """Close the child's copies of the parent's descriptors, of lines that were in use, too; the
        parent's lines stay open.
        """
        for line in self.lines:
            line.close()
        self.begin()


def _all(verb: str, channels: Sequence[str], sharded: bool) -> list[Confirmation]:
    """One command for each channel, so that each has its own confirmation."""
    return [(f"S{verb}" if sharded else verb, channel) for channel in channels]


def _address_of(claim: Claim) -> str:
    """Each waiting thread has a channel of its own."""
    return claim.id


def open_store(target: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store that a URL, or a client of the user's, names; nothing is connected yet."""
    settings = settings_of(target, aio=aio)
    default = check_protocol(settings.protocol, PROTOCOLS, "Redis")
    kind = _native() if aio else Store
    # Each protocol has a node of its own; what is not about one lock is asked of the default's.
    forms = (*PROTOCOLS, VOTE)
    stores = {form: kind(settings, now, form) for form in forms}
    names = {form: "store" if form == default else form for form in forms}

    def backend(protocol: str | None) -> Handed:
        chosen = default if protocol is None else check_protocol(protocol, PROTOCOLS, "Redis")
        store = stores[chosen]
        if chosen in FORMS:
            warnings.warn(UNSAFE.format(chosen, FORMS[chosen].danger), UnsafeProtocolWarning, 2)
            return Polled(names[chosen], CAPABILITIES, store.forget, store.wake_all)
        # To listen is to ask, after which a grant that no replica confirms is given back.
        can = RESERVING._replace(notifies_contention=not settings.replicas)
        return Handed(names[chosen], can, store.forget, store.wake_all)

    nodes = {names[form]: store for form, store in stores.items()}
    return Opened(backend, default, nodes, settings.shown, native=aio)


def _native() -> Any:
    from leaselock.backends.redis.aio import AioStore

    return AioStore
