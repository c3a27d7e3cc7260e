"""Scenarios with local hand-off and cached leases (`core.local_handoff`).

The store sees one claim for each machine and lock. The judge also checks the local waiters behind
it, and the limits of hand-offs in number and time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from verification.simulation.document import DocumentJudge, DocumentScenario
from verification.simulation.judge import Judge, Violation
from verification.simulation.redis import RedisScenario
from verification.simulation.redis_judge import RedisJudge
from verification.simulation.scenario import Scenario
from verification.simulation.simulator import EPOCH

from leaselock._backends.memory.store import CAPABILITIES as MEMORY
from leaselock._backends.redis.backend import WITH_TOKEN_RANGES
from leaselock._backends.redis.keys import keys_of
from leaselock._core.hold import State
from leaselock._core.local_handoff import MAX_HANDOFF, LocalHandoff
from leaselock._core.queue import NodeBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.simulation.simulator import Machine

    from leaselock._backends.document.backend import DocumentBackend
    from leaselock._backends.redis.backend import RedisBackend
    from leaselock._core.backend import Claim
    from leaselock._core.hold import Hold
    from leaselock._core.local_handoff import LocalWaiter, SharedLease

MOMENT = 0.01
# Enough time for the notification that another client waits, and for the release that follows.
ENOUGH = 0.5


class HandoffJudge(Judge):
    """Checks the local waiters and the leases that they share."""

    def layers(self) -> Iterator[tuple[str, LocalHandoff]]:
        """The layers of the live machines."""
        for name, service in self.services.items():
            layer = service.contexts[None].registry.backend
            if self.machines[name].alive and isinstance(layer, LocalHandoff):
                yield name, layer

    def shared_lease_of(self, hold: Hold) -> SharedLease | None:
        """The shared lease on which a hold is based."""
        for _, layer in self.layers():
            waiter = layer.waiters.get(hold.claim.id)
            if waiter is not None:
                return waiter.lease
        return None

    def in_store(self, hold: Hold) -> str:
        """The claim under which the store knows a hold."""
        shared = self.shared_lease_of(hold)
        return hold.claim.id if shared is None else shared.claim.id

    def shared(self, holder: str) -> bool:
        """Return whether the claim is shared and in use, by a hold, a waiter or a pending release.

        A dead machine keeps its claims until the store skips them.
        """
        if not self.machines[holder.partition(".")[0]].alive:
            return True
        if holder in self.cached:
            return True  # a cached lease ends with its term in the worst case
        for name, waiter in self._local_waiters(holder):
            registry = self.services[name].contexts[None].registry
            hold = self.is_valid.get(waiter.claim.id)
            ends = waiter.claim.id not in registry.pending_releases
            if registry.in_flight.active or not ends or (hold and hold.state is not State.FREE):
                return True
        return False

    def _local_waiters(self, holder: str) -> Iterator[tuple[str, LocalWaiter]]:
        """The local waiters that use the shared lease of that claim."""
        for name, layer in self.layers():
            for waiter in layer.waiters.values():
                known = (waiter.lease, waiter.to_release, waiter.queue.lease)
                if any(shared and shared.claim.id == holder for shared in known):
                    yield name, waiter

    def hold_of(self, holder: str) -> Hold | None:
        """The hold of the local waiter that was granted the lease last."""
        for _, waiter in self._local_waiters(holder):
            if waiter.lease is not None and waiter.lease.holder is waiter:
                return self.is_valid.get(waiter.claim.id)
        return self.is_valid.get(holder)

    def check(self) -> None:
        """After each step."""
        for name, layer in self.layers():
            pending = self.services[name].contexts[None].registry.pending_releases
            self.pending_ids |= pending.by_id.keys()
            for queue in layer.queues.values():
                if queue.lease is not None and queue.lease.claim.cached:
                    self.cached.add(queue.lease.claim.id)
        super().check()

    def _granted(self, hold: Hold, machine: Machine) -> None:
        super()._granted(hold, machine)
        shared = self.shared_lease_of(hold)
        if shared is not None:
            self._check_handoff(hold, shared)

    def _check_handoff(self, hold: Hold, shared: SharedLease) -> None:
        """There are no more grants than reserved tokens, and none much later than the first."""
        grant = (shared.claim.id, shared.first_token)
        self.grants_of[grant] += 1
        since = self.begun.setdefault(grant, self.simulator.time)
        if self.grants_of[grant] > hold.claim.tokens:
            raise Violation(
                "order", f"{grant} was handed off more often than {hold.claim.tokens - 1}"
            )
        if shared.claim.cached:
            if self.simulator.time > since + ENOUGH:
                self._check_rivals(hold.claim)
        elif self.calm and self.simulator.time > since + MAX_HANDOFF + MOMENT:
            raise Violation("order", f"{grant} was handed off after its time limit")
        if hold.token > self.counter(hold.claim.name):
            raise Violation("token", f"token {hold.token} was not reserved")

    def counter(self, name: str) -> int:
        """The last token that the store has granted."""
        raise NotImplementedError

    def rivals(self, claim: Claim) -> Iterator[Claim]:
        """The claims of other clients that wait in the store."""
        return iter(())

    def _check_rivals(self, claim: Claim) -> None:
        """A cached lease is not reused when other clients have been waiting for a while."""
        for rival in self.rivals(claim):
            if self.calm and rival.since < EPOCH + self.simulator.time - ENOUGH:
                raise Violation(
                    "order", f"{claim.id} reuses its cached lease while {rival.id} waits"
                )

    def begin(self) -> None:
        """Set the initial state."""
        self.grants_of: Counter[tuple[str, int]] = Counter()
        self.begun: dict[tuple[str, int], float] = {}
        self.pending_ids: set[str] = set()
        self.cached: set[str] = set()

    def at_rest(self) -> None:
        """No local waiter is left, either."""
        super().at_rest()
        for name, layer in self.layers():
            # The renewer repeats a release for a limited time only. And a forked child keeps the
            # waiters of its parent, which it does not use.
            own = self.services[name].contexts[None].registry.client
            claims = [waiter.claim for waiter in layer.waiters.values()]
            left = {claim.id for claim in claims if claim.client == own}
            if not left <= self.pending_ids:
                raise Violation("left behind", f"{name} is left with {left}")


class TableHandoffJudge(HandoffJudge):
    """With a table in memory as the store."""

    def counter(self, name: str) -> int:
        """The last token that the store has granted."""
        return self.model.table.entries[name].token

    def rivals(self, claim: Claim) -> Iterator[Claim]:
        """The claims of other clients that wait in the store."""
        waiting = self.model.table.entries[claim.name].queue.values()
        return (rival for rival in waiting if rival.client != claim.client)


class RedisHandoffJudge(HandoffJudge, RedisJudge):
    """With Redis as the store."""

    def counter(self, name: str) -> int:
        """The last token that the store has granted."""
        token: Any = self._server().data.values[keys_of(name).token.encode()]
        return int(token)


class DocumentHandoffJudge(HandoffJudge, DocumentJudge):
    """With a store that compares and sets one value."""

    def counter(self, name: str) -> int:
        """The last token that the store has granted."""
        token: int = self.model.parsed[name]["token"]
        return token


class HandoffScenario(Scenario):
    """Several users on each machine, with short and long work."""

    works = (0.0005, 0.005, 0.05, 0.4)
    users: tuple[int, ...] = (1, 2, 3, 4)

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.local_handoffs = self.simulator.chance.choice((1, 3, 16))

    def make_judge(self) -> Judge:
        """The judge of local waiters."""
        judge = TableHandoffJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> NodeBackend:
        """The backend of a machine."""
        return NodeBackend(MEMORY, "store", "listener")


class RedisHandoffScenario(HandoffScenario, RedisScenario):
    """The same on Redis."""

    def make_judge(self) -> RedisJudge:
        """The judge of local waiters."""
        judge = RedisHandoffJudge(self, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> RedisBackend:  # type: ignore[override]
        """The production backend."""
        backend = RedisScenario.make_backend(self, machine)
        backend.capabilities = WITH_TOKEN_RANGES._replace(notifies_contention=self.cached)
        return backend


class DocumentHandoffScenario(HandoffScenario, DocumentScenario):
    """The same on a store that compares and sets one value."""

    def make_judge(self) -> DocumentHandoffJudge:
        """The judge of local waiters."""
        DocumentScenario.make_judge(self)
        judge = DocumentHandoffJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> DocumentBackend:  # type: ignore[override]
        """The production backend."""
        return DocumentScenario.make_backend(self, machine)


class CachedScenario(HandoffScenario):
    """A machine caches a lease until another one requests it."""

    cached = True


class RedisCachedScenario(RedisHandoffScenario):
    """The same on Redis."""

    cached = True

    def make_model(self) -> Any:
        """Without replicas."""
        model = super().make_model()
        self.settings = self.settings._replace(replicas=0)
        return model
