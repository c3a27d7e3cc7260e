"""ZooKeeper as threads ask it; and which store a URL, or a client of kazoo's, is.

kazoo answers in a thread of its own. A thread that asks leaves a gate there and waits for it; a
task (module `aio`) leaves a future.
"""

from __future__ import annotations

import threading
import warnings
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from leaselock.backends import Opened, check_protocol
from leaselock.backends.zookeeper.objects import target_of
from leaselock.backends.zookeeper.queue import Queue
from leaselock.backends.zookeeper.requests import Flight, Landed, Poke
from leaselock.backends.zookeeper.session import Session
from leaselock.backends.zookeeper.single import Single
from leaselock.backends.zookeeper.upkeep import UPKEEP, upkeep
from leaselock.backends.zookeeper.url import PROTOCOLS, Target, parsed
from leaselock.core.backend import Listen
from leaselock.core.effects import FOREVER
from leaselock.errors import NotApplied, OutcomeUnknown, UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.zookeeper.flights import InTheAir

LONGEST_WAIT = 3600.0
HERD = (
    'protocol "single" wakes everyone who waits at each release, serves them in no order, and '
    'after a forced release may free the next holder\'s lock: use the default, "queue"'
)


class Store:
    """The session, asked by threads."""

    def __init__(self, target: Target, heard: Callable[[str], None], now: Callable[[], float]):
        self.session = Session(target, heard)
        self.now = now

    def call(self, request: object, until: float) -> object:
        """The answers of a flight, or what upkeep finds."""
        if isinstance(request, UPKEEP):
            return upkeep(request, self.session, lambda *ops: self._fly(Flight(ops), until))
        assert isinstance(request, Flight)
        return self._fly(request, until)

    def _fly(self, asked: Flight, until: float) -> Landed:
        session = self.session
        client = session.start()
        if not client.connected and not client.live.wait(self._left(until)):
            raise session.unreachable()
        gate, landed = threading.Lock(), []
        gate.acquire()

        def done(flight: InTheAir) -> None:
            landed.append(flight)
            gate.release()

        session.launch(client, asked, done)
        if not gate.acquire(timeout=self._left(until)):
            raise OutcomeUnknown(f"no answer of {session.target.shown} in time")
        return landing(session, landed[0])

    def _left(self, until: float) -> float:
        return min(max(0.0, until - self.now()), LONGEST_WAIT)

    def interrupt(self) -> None:
        """No call here lasts."""

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def after_fork(self) -> None:
        """The child will have a session of its own."""
        self.session.after_fork()


def landing(session: Session, flight: InTheAir) -> Landed:
    """What a flight brought; or raise why not."""
    failure = flight.failure()
    if failure is not None:
        raise failure
    return Landed(session.number, session.timeout, tuple(flight.answers))


class Ear:
    """Hears which watched nodes have changed. Each way of locking has an ear of its own in it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.words: dict[str, SimpleQueue[str | None]] = {}
        self.ended = False

    def heard(self, word: str) -> None:
        """In kazoo's thread: for whoever listens."""
        for words in list(self.words.values()):
            words.put(word)

    def call(self, request: object, until: float) -> object:
        """The next word."""
        assert isinstance(request, (Listen, Poke))
        words = self.words.setdefault(request.client, SimpleQueue())
        if isinstance(request, Poke):
            words.put(".")
            return None
        return (self._word(words, until),)

    def _word(self, words: SimpleQueue[str | None], until: float) -> str:
        left = None if until == FOREVER else max(0.0, until - self.now())
        try:
            word = None if self.ended else words.get(timeout=left)
        except Empty:
            raise OutcomeUnknown("nothing was heard in time") from None
        if word is None:
            raise NotApplied("the client was closed")
        return word

    def interrupt(self) -> None:
        """End the calls under way, and those to come until `close`."""
        self.ended = True
        for words in list(self.words.values()):
            words.put(None)

    def close(self) -> None:
        """Be ready for another life."""
        self.words = {}
        self.ended = False

    def after_fork(self) -> None:
        """The child hears nothing of the parent's."""
        self.close()


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store that a URL names, or whose client the user has."""
    target = parsed(named) if isinstance(named, str) else target_of(named)

    def backend(protocol: str | None) -> Queue | Single:
        if check_protocol(protocol, PROTOCOLS, "ZooKeeper") == "queue":
            return Queue(target.root, target.timeout, target.mark, now)
        warnings.warn(HERD, UnsafeProtocolWarning, stacklevel=2)
        return Single(target.root, target.timeout, now)

    return Opened(backend, target.protocol, _nodes(target, now, aio), target.shown, native=aio)


def _nodes(target: Target, now: Callable[[], float], aio: bool) -> dict[str, Any]:
    if aio:
        from leaselock.backends.zookeeper.aio import AioEar, AioStore

        hearing = AioEar(now)
        return {"store": AioStore(Store(target, hearing.heard, now)), "ear": hearing}
    ear = Ear(now)
    return {"store": Store(target, ear.heard, now), "ear": ear}
