"""A simulated client of protocols "row" and "advisory": the library's own tasks, and connections
that are lost in silence, or ended by the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.sql_loop import Loop

from leaselock.backends.sql.aio import AioStore
from leaselock.backends.sql.aio_seating import AioSeating
from leaselock.backends.sql.script import Dialect, SqlError, dialect_of
from leaselock.backends.sql.url import Target
from leaselock.core.backend import Listen
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.simulation.sql_seats import SeatsStory
    from tests.simulation.sql_server import Session
    from tests.simulation.world import Machine

    from leaselock.backends.sql.script import Result, Script
    from leaselock.core.effects import Call

SILENCE = 4.0


class Titles(Dialect):
    """The statements are sent by their titles."""

    def text(self, script: Script, kept: set[str] | None = None) -> tuple[Any, list[str]]:
        """As it is."""
        return script, []

    def grouped(self, script: Script, results: list[Result]) -> list[Result]:
        """One for each part."""
        return results


class Line:
    """A client's connection."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.machine = client.machine
        self.session: Session = client.story.server.begin(self._ended)
        self.backend = self.session.number
        self.whole = True
        self.broken = self.worn = self.over = False
        self.kept: set[str] | None = None
        self.asked: asyncio.Future[object] | None = None
        client.lines.append(self)

    def fresh(self) -> bool:
        """Whether it can be used."""
        return not self.broken and not self.over

    def _travel(self, arrive: Callable[[], None]) -> None:
        world = self.machine.world
        world.after(world._delay(world.faults), lambda: arrive() if self.whole else None)

    def _ended(self) -> None:
        """The server has ended it; that is on its way."""
        self._travel(self._seen)

    def _seen(self) -> None:
        """The client's kernel knows, and then the client."""
        self.over = True
        if self.machine.alive:
            self._settle(None)
            self.client.watch.add(self)

    def _settle(self, outcome: object) -> None:
        if self.asked is not None and not self.asked.done():
            self.asked.set_result(outcome)

    async def run(self, script: Any, until: float) -> list[Result]:
        """Have a script carried out."""
        loop = self.client.loop
        if not self.fresh():
            raise OutcomeUnknown("the connection was lost")
        self.asked = future = loop.create_future()
        timer = loop.call_later(max(0.0, until - loop.time()), self._settle, None)
        story, faults = self.client.story, self.machine.world.faults
        if story.happens(faults.lost_request):
            self.whole = False
        self._travel(lambda: story.server.ask(self.session, script, self._answer))
        outcome = None
        try:
            outcome = await future
        finally:
            timer.cancel()
            self.asked = None
            self.broken = self.broken or outcome is None
        if isinstance(outcome, SqlError):
            raise outcome
        if not isinstance(outcome, list):
            raise OutcomeUnknown("no answer in time")
        return outcome

    def _answer(self, results: object) -> None:
        if self.client.story.happens(self.machine.world.faults.lost_reply):
            self.whole = False
        self._travel(lambda: self._settle(results))

    def cut(self) -> None:
        """End it, from here."""
        if not self.broken:
            self.broken = True
            self._travel(lambda: self.client.story.server.end(self.session))
            self._settle(None)

    close = cut

    def abandon(self) -> None:
        """It is the parent's."""


class Watch:
    """Which connections of a client have ended, and who wants to know; the node "ends"."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.places: list[Any] = []
        self.words: list[str] = []
        self.poked = False
        self.reply: Callable[[object], None] | None = None

    def of(self, client: str) -> Any:
        """A machine is one client."""
        return self.registry

    @property
    def registry(self) -> Registry:
        """Where places come and go."""
        return Registry(self)

    def add(self, line: Line) -> None:
        """A connection has ended."""
        for place in [place for place in self.places if place.line is line]:
            self.places.remove(place)
            place.ended = True
            if place.seat.token is not None and place.seat.claim is not None:
                self.words.append(place.seat.claim.id)
            self.poke()

    def poke(self) -> None:
        """Whoever listens is told."""
        self.poked = True
        reply, self.reply = self.reply, None
        if reply is not None:
            words, self.words, self.poked = tuple(self.words), [], False
            reply(words)

    def handle(
        self,
        machine: Machine,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """Listen, or have who listens look."""
        if not isinstance(call.request, Listen):
            self.poke()
            reply(None)
            return
        self.reply = reply
        if self.poked:
            self.poke()
        elif call.until < float("inf"):
            seconds = max(0.0, call.until - machine.now())
            machine.world.after(seconds, lambda: self._too_late(reply))

    def _too_late(self, reply: Callable[[object], None]) -> None:
        if self.reply is reply:
            self.reply = None
            reply(OutcomeUnknown("nothing ended in time"))


class Registry:
    """What the places know of a watch."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def add(self, place: Any) -> None:
        """Watch a connection."""
        self.watch.places.append(place)

    def remove(self, place: Any) -> None:
        """Watch it no more."""
        if place in self.watch.places:
            self.watch.places.remove(place)


class Store(AioStore):
    """The production store, on our connections."""

    def __init__(self, client: Client, target: Target) -> None:
        super().__init__(target, client.machine.now)
        self.client = client
        self.dialect = Titles(*dialect_of("postgres"))

    async def connect(self, until: float, bare: bool = False) -> Line:
        """A new connection."""
        loop, world = self.client.loop, self.client.machine.world
        done = loop.create_future()
        takes, left = 2 * world._delay(world.faults), max(0.0, until - loop.time())
        loop.call_later(min(takes, left), done.set_result, None)
        await done
        if takes > left:
            raise NotApplied("no connection in time")
        line = Line(self.client)
        self.lines.add(line)
        return line


class Client:
    """The nodes of one machine."""

    def __init__(self, story: SeatsStory, machine: Machine) -> None:
        self.story = story
        self.machine = machine
        self.loop = Loop(machine)
        self.lines: list[Line] = []
        self.watch = Watch(machine)
        target = Target("postgres", "db", None, None, None, "", {}, "db", session=SILENCE)
        self.store = Store(self, target)
        self.seating = AioSeating(self.store, self.watch)  # type: ignore[arg-type]

    def wake_all(self) -> None:
        """Wake who waits."""
        self.seating.wake_all()

    def die(self, story: SeatsStory) -> None:
        """Its kernel ends its connections, unless its power was cut."""
        if story.happens(0.7):
            for line in self.lines:
                line._travel(lambda line=line: story.server.end(line.session))  # type: ignore[misc]
