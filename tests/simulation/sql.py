"""Stories on PostgreSQL: the production text on simulated connections to a model of the server.

A connection that is lost is lost in silence, and its session ends by the clock of the server: the
protocols survive that. In `EndedStory` sessions are ended by force: then two clients may be valid
holders until the first has heard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import BeliefsJudge, Judge, Violation
from tests.simulation.sql_connection import Network, simulated_store
from tests.simulation.sql_lease_server import LeaseServer
from tests.simulation.sql_server import Server
from tests.simulation.story import HEAL, Story

from leaselock.core.effects import FOREVER
from leaselock.core.hold import State

if TYPE_CHECKING:
    from tests.simulation.world import Machine

    from leaselock.backends.sql.store import SqlStore
    from leaselock.core.hold import Hold


class DatabaseStory(Story):
    """One seed; each machine has a store of its own."""

    protocol = "lease"

    def make_stores(self) -> None:
        """None yet."""
        self.networks: dict[str, Network] = {}
        self.stores: dict[str, SqlStore] = {}

    def make_backend(self, machine: Machine) -> Any:
        """The production text."""
        return self._store(machine).backend(self.protocol)

    def _store(self, machine: Machine) -> SqlStore:
        network = self.networks[machine.name] = Network(machine, self.model)
        store = self.stores[machine.name] = simulated_store(network)
        return store

    def die(self, name: str) -> None:
        """A machine crashed."""
        self.networks[name].die()

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """A child has connections of its own."""
        old, new = self.stores[parent.name], self._store(child)
        return {id(old): new, id(old.sessions): new.sessions, id(old.pool): new.pool}


class SqlJudge(Judge):
    """Looks at the tables between transactions only, and does not judge fairness."""

    def check(self) -> None:
        """After each step: no two valid holders, and tokens rise."""
        self.check_time()
        model: Any = self.model
        if self.looked_at((model.tables.changes, len(model.owners))):
            return
        self.remember_orphans()
        self.believers()
        self._check_rows()

    def _check_rows(self) -> None:
        """Every hold in the table, outside of transactions, is wanted by a client."""
        model: Any = self.model
        now = model.tables.micros()
        for name, row in model.tables.locks.items():
            if name in model.owners or row["id"] is None or row["expires"] <= now:
                continue
            hold = self.is_valid.get(row["id"])
            if hold is not None and hold.state is State.FREE:
                raise Violation(f"{row['id']} was released, and holds again")
            if hold is None and self._is_ghost(row["client"], row["id"]):
                raise Violation(f"{row['id']} holds for nobody")

    def _is_ghost(self, client: str, holder: str) -> bool:
        # A machine names its clients after itself.
        name = client.partition(".")[0]
        if not self.machines[name].alive:
            return False
        registry = self.registry[name]
        # A release that could not be sent for long is left to the end of the lease.
        given_up = self.given_up_by.get(holder, FOREVER) <= self.machines[name].now()
        return (
            not registry.in_flight.active
            and holder not in registry.pending_releases
            and not given_up
        )

    def _check_order(self, hold: Hold) -> None:
        """The order of grants is that of the tokens, which is checked."""

    def at_rest(self) -> None:
        """All were served, no hold and no waiter is left, and no row is locked."""
        model: Any = self.model
        tables, now = model.tables, model.tables.micros()
        self.all_were_served()
        for name, row in tables.locks.items():
            if row["id"] is not None and row["expires"] > now:
                raise Violation(f"{name!r} is held by nobody: {row['id']}")
        for name, queue in tables.waiters.items():
            if [waiter for waiter in queue if waiter["expires"] > now]:
                raise Violation(f"somebody is left in the queue of {name!r}")
        if model.owners:
            raise Violation("a transaction was left open")
        self.all_was_given_back()


class SqlStory(DatabaseStory):
    """Protocol "lease"."""

    def make_model(self) -> LeaseServer:
        """A server."""
        world = self.world
        self.make_stores()
        return LeaseServer(lambda: world.time, self._micros, world.after)

    def make_judge(self) -> SqlJudge:
        """Of tables."""
        self.world.models = {"server": self}  # type: ignore[dict-item]
        return SqlJudge(self.world, self.model, self.calm, max(self.leases))


class SessionsJudge(BeliefsJudge):
    """What the server has depends on sessions, so holders, tokens and the end are judged."""

    def at_rest(self) -> None:
        """All were served, and no session has a lock."""
        self.all_were_served()
        self.all_was_given_back()
        model: Any = self.model
        for key, session in model.owners.items():
            if key[0] != "liveness_key":
                raise Violation(f"session {session.number} has {key} for nobody")


class SessionsStory(DatabaseStory):
    """Protocol "row" or "advisory"."""

    def make_model(self) -> Server:
        """A server."""
        world = self.world
        self.make_stores()
        self.protocol = world.chance.choice(("row", "advisory"))
        return Server(self._micros, world.after)

    def make_judge(self) -> SessionsJudge:
        """Of sessions."""
        self.world.models = {"server": self}  # type: ignore[dict-item]
        return SessionsJudge(self.world, self.model, self.calm, max(self.leases))


class EndedStory(SessionsStory):
    """Sessions are ended by force, one or all; the holder is notified, and its token is older."""

    def make_judge(self) -> SessionsJudge:
        """Counts overlaps instead."""
        judge = super().make_judge()
        judge.shows = True
        self.world.after(2.0, self._trouble)
        return judge

    def _trouble(self) -> None:
        chance = self.world.chance
        if self.world.time >= HEAL or self.calm:
            return
        sessions = list(self.model.sessions.values())
        for session in sessions if chance.random() < 0.3 else sessions[-1:]:
            self.model.end(session)
        self.world.after(chance.expovariate(0.5), self._trouble)
