"""Scenarios on PostgreSQL: the production text on simulated connections to a model of the server.

Connections are lost without an error, and the server ends their sessions by its own clock: the
protocols survive that. In `TerminatedScenario` sessions are terminated by force: then two leases
may overlap until the first client has been notified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.judge import Judge, ValidityJudge, Violation
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.sql_connection import Network, simulated_store
from verification.simulation.sql_lease_server import LeaseServer
from verification.simulation.sql_server import Server

from leaselock._core.client.hold import State
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._backends.sql.store import SqlStore
    from leaselock._core.client.hold import Hold


class DatabaseScenario(Scenario):
    """One seed; each machine has its own store."""

    protocol = "lease"

    def make_stores(self) -> None:
        """Make no server yet."""
        self.networks: dict[str, Network] = {}
        self.stores: dict[str, SqlStore] = {}

    def make_backend(self, machine: Machine) -> Any:
        """Make the production backend."""
        return self._store(machine).backend(self.protocol)

    def _store(self, machine: Machine) -> SqlStore:
        network = self.networks[machine.name] = Network(machine, self.model)
        store = self.stores[machine.name] = simulated_store(network)
        return store

    def die(self, name: str) -> None:
        """Handle the crash of a machine."""
        self.networks[name].die()

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """Return the connections of a forked child."""
        old, new = self.stores[parent.name], self._store(child)
        return {id(old): new, id(old.sessions): new.sessions, id(old.pool): new.pool}


class SqlJudge(Judge):
    """Checks the tables between transactions only, and not the order of grants."""

    def check(self) -> None:
        """After each step: no two valid holders, and tokens increase."""
        self.check_time()
        model: Any = self.model
        if self.is_unchanged((model.tables.changes, len(model.owners))):
            return
        self.record_given_up()
        self.valid_holders()
        self._check_rows()

    def _check_rows(self) -> None:
        """Each hold in the table, outside of transactions, has an owner."""
        model: Any = self.model
        now = model.tables.micros()
        for name, row in model.tables.locks.items():
            if name in model.owners or row["id"] is None or row["expires"] <= now:
                continue
            hold = self.is_valid.get(row["id"])
            if hold is not None and hold.state is State.ENDED:
                raise Violation("left behind", f"{row['id']} was released, and holds again")
            if hold is None and self._is_abandoned(row["client"], row["id"]):
                raise Violation("left behind", f"{row['id']} holds without an owner")

    def _is_abandoned(self, client: str, holder: str) -> bool:
        # The identifiers of clients begin with the name of their machine.
        name = client.partition(".")[0]
        if not self.machines[name].alive:
            return False
        registry = self.registry[name]
        # A release that failed for long is left to the end of the lease.
        given_up = self.given_up_by.get(holder, FOREVER) <= self.machines[name].now()
        return holder not in registry.table and not given_up

    def _check_order(self, hold: Hold) -> None:
        """The order of grants is that of the tokens, which is checked."""

    def at_rest(self) -> None:
        """All were served, no hold is left, and no row is locked."""
        model: Any = self.model
        tables, now = model.tables, model.tables.micros()
        self.all_were_served()
        for name, row in tables.locks.items():
            if row["id"] is not None and row["expires"] > now:
                raise Violation("left behind", f"{name!r} is held without an owner: {row['id']}")
        if model.owners:
            raise Violation("left behind", "a transaction was left open")
        self.all_was_released()


class SqlScenario(DatabaseScenario):
    """Protocol "lease"."""

    def make_model(self) -> LeaseServer:
        """A server."""
        simulator = self.simulator
        self.make_stores()
        return LeaseServer(lambda: simulator.time, self._micros, simulator.after)

    def make_judge(self) -> SqlJudge:
        """Of tables."""
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        return SqlJudge(self.simulator, self.model, self.calm, max(self.leases))


class SessionsJudge(ValidityJudge):
    """Checks holders, tokens and the end; the state of the server depends on its sessions."""

    def at_rest(self) -> None:
        """All were served, and no session has a lock."""
        self.all_were_served()
        self.all_was_released()
        model: Any = self.model
        for key, session in model.owners.items():
            if key[0] != "liveness_key":
                raise Violation(
                    "left behind", f"session {session.number} has {key} without an owner"
                )


class SessionsScenario(DatabaseScenario):
    """Protocol "row" or "advisory"."""

    def make_model(self) -> Server:
        """A server."""
        simulator = self.simulator
        self.make_stores()
        self.protocol = simulator.chance.choice(("row", "advisory"))
        return Server(self._micros, simulator.after)

    def make_judge(self) -> SessionsJudge:
        """Of sessions."""
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        return SessionsJudge(self.simulator, self.model, self.calm, max(self.leases))


class TerminatedScenario(SessionsScenario):
    """Sessions are terminated, one or all; the holder is notified, and its token is older."""

    def make_judge(self) -> SessionsJudge:
        """Make a judge that counts overlaps."""
        judge = super().make_judge()
        judge.shows = True
        self.simulator.after(2.0, self._trouble)
        return judge

    def _trouble(self) -> None:
        chance = self.simulator.chance
        if self.simulator.time >= HEAL or self.calm:
            return
        sessions = list(self.model.sessions.values())
        for session in sessions if chance.random() < 0.3 else sessions[-1:]:
            self.model.end(session)
        self.simulator.after(chance.expovariate(0.5), self._trouble)
