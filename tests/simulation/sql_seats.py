"""Stories on the protocols "row" and "advisory": the library's own text, its tasks and connections
among it, on a model of PostgreSQL's sessions.

A connection that is lost is lost in silence, and its session ends by the server's clock: that is
what these protocols survive. Sessions that are ended by force are in `EndedStory`: then two may
believe until the holder has heard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import BeliefsJudge, Violation
from tests.simulation.sql_client import SILENCE, Client
from tests.simulation.sql_server import Server
from tests.simulation.story import HEAL, Story

from leaselock.backends.sql.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Machine

    from leaselock.core.effects import Call


class Nodes:
    """A node of all machines."""

    def __init__(self, story: SeatsStory, name: str) -> None:
        self.story = story
        self.name = name

    def handle(
        self,
        machine: Machine,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """One request of a machine."""
        client = self.story.clients[machine.name]
        if self.name == "ends":
            client.watch.handle(machine, call, wanted, reply)
        else:
            client.loop.begin(lambda: client.seating.call(call.request, call.until), reply)

    def die(self, name: str) -> None:
        """A machine is gone."""
        if self.name == "seats":
            self.story.clients[name].die(self.story)


class SeatsJudge(BeliefsJudge):
    """What the server has, it has by its sessions; so beliefs, tokens and ends are judged."""

    def __init__(self, story: SeatsStory, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.story = story

    def at_rest(self) -> None:
        """Everybody was served, and nobody has a lock."""
        self.all_were_served()
        self.all_was_given_back()
        for key, session in self.story.server.owners.items():
            if key[0] != "sign":
                raise Violation(f"session {session.number} has {key} for nobody")
        failed = [f for client in self.story.clients.values() for f in client.loop.failed]
        if failed:
            raise Violation(f"a task ended by {failed[0]!r}")


class SeatsStory(Story):
    """One seed; each uses one of the two protocols."""

    def make_model(self) -> Any:
        """The server, and who is connected to it."""
        world = self.world
        self.server = Server(self._micros, world.after)
        self.clients: dict[str, Client] = {}
        self.protocol = world.chance.choice(("row", "advisory"))
        return Nodes(self, "seats")

    def happens(self, chance: float) -> bool:
        """Whether a fault of that likelihood happens now."""
        return chance > 0.0 and self.world.chance.random() < chance

    def make_judge(self) -> SeatsJudge:
        """Of sessions."""
        self.world.models = {"seats": self.model, "ends": Nodes(self, "ends")}
        return SeatsJudge(self, self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Sessions:
        """The production text."""
        client = self.clients[machine.name] = Client(self, machine)
        return Sessions(self.protocol, SILENCE, machine.now, client.wake_all)

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """Connections of its own."""
        self.clients[child.name] = Client(self, child)
        return {id(self.clients[parent.name]): self.clients[child.name]}


class EndedStory(SeatsStory):
    """Sessions are ended by force, one or all; the holder is told, and its token is older."""

    def make_judge(self) -> SeatsJudge:
        """Who counts overlaps instead."""
        judge = super().make_judge()
        judge.shows = True
        self.world.after(2.0, self._trouble)
        return judge

    def _trouble(self) -> None:
        chance = self.world.chance
        if self.world.time >= HEAL or self.calm:
            return
        sessions = list(self.server.sessions.values())
        for session in sessions if chance.random() < 0.3 else sessions[-1:]:
            self.server.end(session)
        self.world.after(chance.expovariate(0.5), self._trouble)
