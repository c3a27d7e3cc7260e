"""One cell of the table: a hazard, played on one way of locking, by processes of its own.

Law: a lock's name is used once. What a scene has hired or built, it gives back. A first acquire of
a free lock that fails is an error of the play, never an outcome.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Self

from leaselock.testing.hazards.lines import InTheProcess, Line, OnTheWire
from leaselock.testing.hazards.outcome import Ended, nothing
from leaselock.testing.hazards.places import SQL_SESSION
from leaselock.testing.hazards.register import Register
from leaselock.testing.polling import poll_until as until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.hazards.actor import Answer
    from leaselock.testing.hazards.crew import Actor, Crew
    from leaselock.testing.hazards.lines import Snag
    from leaselock.testing.hazards.places import Place
    from leaselock.testing.hazards.ways import Way

# A lease that does not end while a scene is played, and how long after its end a lock may take to
# be free: much longer than a busy machine needs.
LONG = 30.0
GRACE = 3.0
SOON = 8.0
# Where a lease is counted in whole seconds, or is the time that a session may be silent.
LEASES = {"setnx-expire": 1.0, "row": SQL_SESSION, "advisory": SQL_SESSION}
# So many steps of an acquire or a release are struck.
MOST = 4
TRIES = 3
# A machine may be so busy that a free lock is not granted for so long.
BUSY = 20.0


class Scene:
    """The stage of one cell."""

    def __init__(self, crew: Crew, way: Way, place: Place, number: int) -> None:
        self.crew = crew
        self.way = way
        self.place = place
        self.base = f"{place.prefix}.{number}"
        self.name = self.base
        self.url = place.corner(number, ours=way.ours)
        self.hired: list[Actor] = []
        self.lines: list[Line] = []
        self.register = Register()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.hired:
            actor.dismiss()
        for line in self.lines:
            line.close()
        self.register.close()

    # --- who plays --------------------------------------------------------------------------------

    @property
    def lease(self) -> float:
        """A lease that is short; or the session, where a hold ends with that."""
        return LEASES.get(self.way.protocol, self.place.lease)

    @property
    def bound(self) -> float:
        """When at the latest a lock is free whose holder is gone."""
        return self.lease + GRACE

    @property
    def over(self) -> float:
        """When most probably another can have a lock whose lease is not renewed."""
        return self.lease + 1.5

    def actor(self, *, skew: float = 0.0) -> Actor:
        """A process that is a party of this way."""
        actor = self.crew.hire(fresh=bool(skew))
        self.hired.append(actor)
        actor.become(self.way, self.url, skew)
        return actor

    def slow(self) -> Slow:
        """A party whose messages can be struck."""
        line = Line(self.place, self.url)
        self.lines.append(line)
        actor = self.crew.hire(fresh=not self.place.networked)
        self.hired.append(actor)
        actor.become(self.way, line.url, steps=not self.place.networked)
        return Slow(self, actor, line)

    def rounds(self) -> Iterator[int]:
        """1, 2, 3, …, each time with another lock."""
        for number in range(1, MOST + 1):
            self.name = f"{self.base}.{number}"
            yield number

    def networked(self) -> None:
        """Only where there is a network."""
        if not self.place.networked:
            raise Ended(nothing("there is no network in between"))

    # --- what they do -----------------------------------------------------------------------------

    def take(self, actor: Actor, lease: float = LONG, *, renew: bool = True) -> Answer:
        """Ask for the lock once."""
        return actor.ask("take", self.name, lease, renew, 0.0)

    def wait(self, actor: Actor, patience: float, lease: float = LONG) -> Answer:
        """Wait for it."""
        return actor.ask("take", self.name, lease, True, patience)

    def hold(self, actor: Actor, lease: float = LONG, *, renew: bool = True) -> Answer:
        """Take it, which must succeed, if not at once on a busy machine."""
        return granted(actor, self.name, lease, renew)

    def release(self, actor: Actor) -> str:
        """Release it; what the program was told."""
        return said(actor.ask("release", self.name))


class Slow:
    """A party with a line of its own, on which things can befall its messages."""

    def __init__(self, scene: Scene, actor: Actor, line: Line) -> None:
        self.scene = scene
        self.actor = actor
        self.line = line
        self.answer: Answer | None = None

    def warm(self) -> None:
        """Have its connections made, so that a fault strikes what it does and not its greeting."""
        name = f"{self.scene.name}.warm"
        granted(self.actor, name, LONG, True)
        self.actor.ask("release", name)

    def snag(self, action: str, nth: int) -> Snag:
        """Something that befalls the k-th thing that it does from now on."""
        if self.line.proxies:
            return OnTheWire(self.line.proxies, action, nth)
        return InTheProcess(self.actor, nth)

    def start(self, snag: Snag, order: str, *words: Any) -> bool:
        """Let it begin; whether it was struck before it was done."""
        self.actor.begin(order, *words)
        until(lambda: snag.struck() or self.actor.ready(), SOON)
        if snag.struck():
            return True
        self.answer = self.actor.result()
        snag.withdraw()
        return False

    def take(self, snag: Snag, lease: float = LONG) -> bool:
        """Begin to take the lock; whether it was struck."""
        return self.start(snag, "take", self.scene.name, lease, True, 0.0)

    def done(self) -> Answer:
        """What came of what it began."""
        if self.answer is None:
            self.answer = self.actor.result()
        return self.answer

    def die(self) -> None:
        """Be killed; the kernel ends the connections."""
        if self.actor.state() == "T":
            self.actor.signal(signal.SIGKILL)
        self.actor.kill()
        self.line.cut()

    def touches(self, patience: float) -> int:
        """How often it touches the store while it waits in vain for so many seconds."""
        before = self.line.requests() + self.actor.ask("look").steps
        waited = self.scene.wait(self.actor, patience)
        if waited.held:
            raise RuntimeError("a lock that is held was granted")
        return self.line.requests() + waited.steps - before

    def cost(self, seconds: float) -> int:
        """How many messages it sends within so many seconds, whatever it is doing."""
        before = self.line.requests()
        # The length of the measurement, not a wait.
        time.sleep(seconds)
        return self.line.requests() - before


def granted(actor: Actor, name: str, lease: float, renew: bool) -> Answer:
    """Take a lock that is free."""
    deadline = time.monotonic() + BUSY
    while not (answer := actor.ask("take", name, lease, renew, SOON)).held:
        if time.monotonic() > deadline:
            break
    else:
        return answer
    raise RuntimeError(f"a lock that was free was not granted: {answer.why}")


def counted(number: int, what: str) -> str:
    """1 step, 2 steps."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def said(answer: Answer) -> str:
    """What a program was told, in a few words."""
    return f"was told {answer.said}" if answer.said else "was told nothing"
