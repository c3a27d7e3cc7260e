"""Stories in which the threads or tasks of a machine pass a lease among themselves (`core.local`).

The store sees one claim for each machine and lock; the judge sees the members behind it, and that
a turn has its bounds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.judge import Judge, Violation
from tests.simulation.redis import RedisStory
from tests.simulation.redis_judge import RedisJudge
from tests.simulation.story import Story
from tests.simulation.world import EPOCH

from leaselock.backends.memory.store import CAPABILITIES as MEMORY
from leaselock.backends.redis.backend import WITH_TOKEN_RANGES
from leaselock.backends.redis.keys import keys_of
from leaselock.core.hold import State
from leaselock.core.local_handoff import MAX_HANDOFF, LocalHandoff
from leaselock.core.queue import NodeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world import Machine

    from leaselock.backends.redis.backend import RedisBackend
    from leaselock.core.backend import Claim
    from leaselock.core.hold import Hold
    from leaselock.core.local_handoff import LocalWaiter, SharedLease

MOMENT = 0.01
# In which a word that somebody waits has come, and its answer.
ENOUGH = 0.5


class Members(Judge):
    """What must be true of members and their anchors."""

    def layers(self) -> Iterator[tuple[str, LocalHandoff]]:
        """Those of the machines that live."""
        for name, service in self.services.items():
            layer = service.contexts[None].registry.backend
            if self.machines[name].alive and isinstance(layer, LocalHandoff):
                yield name, layer

    def anchor_of(self, hold: Hold) -> SharedLease | None:
        """What a hold hangs on."""
        for _, layer in self.layers():
            waiter = layer.waiters.get(hold.claim.id)
            if waiter is not None:
                return waiter.lease
        return None

    def in_store(self, hold: Hold) -> str:
        """By which claim the store knows a hold."""
        anchor = self.anchor_of(hold)
        return hold.claim.id if anchor is None else anchor.claim.id

    def shared(self, holder: str) -> bool:
        """Whether the claim is an anchor that somebody holds by, waits for, or will give back; the
        dead have theirs until they are passed over.
        """
        if not self.machines[holder.partition(".")[0]].alive:
            return True
        if holder in self.cached:
            return True  # what is kept ends with its lease, if all goes wrong
        for name, waiter in self._members(holder):
            registry = self.services[name].contexts[None].registry
            hold = self.is_valid.get(waiter.claim.id)
            ends = waiter.claim.id not in registry.pending_releases
            if registry.in_flight.active or not ends or (hold and hold.state is not State.FREE):
                return True
        return False

    def _members(self, holder: str) -> Iterator[tuple[str, LocalWaiter]]:
        """Those who hang on the anchor with that claim."""
        for name, layer in self.layers():
            for waiter in layer.waiters.values():
                known = (waiter.lease, waiter.to_release, waiter.queue.lease)
                if any(anchor and anchor.claim.id == holder for anchor in known):
                    yield name, waiter

    def hold_of(self, holder: str) -> Hold | None:
        """That of whoever was given the lease last."""
        for _, waiter in self._members(holder):
            if waiter.lease is not None and waiter.lease.holder is waiter:
                return self.is_valid.get(waiter.claim.id)
        return self.is_valid.get(holder)

    def check(self) -> None:
        """After each step."""
        for name, layer in self.layers():
            pending = self.services[name].contexts[None].registry.pending_releases
            self.orphaned |= pending.by_id.keys()
            for line in layer.queues.values():
                if line.lease is not None and line.lease.claim.cached:
                    self.cached.add(line.lease.claim.id)
        super().check()

    def _granted(self, hold: Hold, machine: Machine) -> None:
        super()._granted(hold, machine)
        anchor = self.anchor_of(hold)
        if anchor is not None:
            self._check_turn(hold, anchor)

    def _check_turn(self, hold: Hold, anchor: SharedLease) -> None:
        """No more grants than were reserved, and none much later than the first."""
        turn = (anchor.claim.id, anchor.first_token)
        self.grants_of[turn] += 1
        since = self.begun.setdefault(turn, self.world.time)
        if self.grants_of[turn] > hold.claim.tokens:
            raise Violation(f"{turn} has been passed on more often than {hold.claim.tokens - 1}")
        if anchor.claim.cached:
            if self.world.time > since + ENOUGH:
                self._check_rivals(hold.claim)
        elif self.calm and self.world.time > since + MAX_HANDOFF + MOMENT:
            raise Violation(f"{turn} was passed on when its turn was over")
        if hold.token > self.counter(hold.claim.name):
            raise Violation(f"token {hold.token} was not reserved")

    def counter(self, name: str) -> int:
        """The last token that the store has given away."""
        raise NotImplementedError

    def rivals(self, claim: Claim) -> Iterator[Claim]:
        """Who else waits in the store."""
        return iter(())

    def _check_rivals(self, claim: Claim) -> None:
        """A lease that is kept is not taken again when others have been waiting for a while."""
        for rival in self.rivals(claim):
            if self.calm and rival.since < EPOCH + self.world.time - ENOUGH:
                raise Violation(f"{claim.id} has it again, and {rival.id} goes on waiting")

    def begin(self) -> None:
        """Nothing was granted yet."""
        self.grants_of: Counter[tuple[str, int]] = Counter()
        self.begun: dict[tuple[str, int], float] = {}
        self.orphaned: set[str] = set()
        self.cached: set[str] = set()

    def at_rest(self) -> None:
        """Nothing is left in a layer, either."""
        super().at_rest()
        for name, layer in self.layers():
            # The keeper does not try for ever to give back what a store that is away has. And a
            # forked child keeps what it can do nothing with.
            ours = self.services[name].contexts[None].registry.client
            left = {who for who, waiter in layer.waiters.items() if waiter.claim.client == ours}
            if not left <= self.orphaned:
                raise Violation(f"{name} is left with {left}")


class TableMembers(Members):
    """With a table as the store."""

    def counter(self, name: str) -> int:
        """The last token that the store has given away."""
        return self.model.table.entries[name].token

    def rivals(self, claim: Claim) -> Iterator[Claim]:
        """Who else waits in the store."""
        waiting = self.model.table.entries[claim.name].queue.values()
        return (rival for rival in waiting if rival.client != claim.client)


class RedisMembers(Members, RedisJudge):
    """With Redis as the store."""

    def counter(self, name: str) -> int:
        """The last token that the store has given away."""
        token: Any = self._server().data.values[keys_of(name, False).token.encode()]
        return int(token)


class Passing(Story):
    """Several on each machine, with short work and long."""

    works = (0.0005, 0.005, 0.05, 0.4)
    users = (1, 2, 3, 4)

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.local_handoffs = self.world.chance.choice((1, 3, 16))

    def make_judge(self) -> Judge:
        """Who sees the members."""
        judge = TableMembers(self.world, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> NodeQueue:
        """How its machines lock."""
        return NodeQueue(MEMORY, "store", "ear")


class PassingOnRedis(Passing, RedisStory):
    """The same on Redis."""

    def make_judge(self) -> RedisJudge:
        """Who sees the members."""
        judge = RedisMembers(self, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> RedisBackend:  # type: ignore[override]
        """The production text."""
        backend = RedisStory.make_backend(self, machine)
        backend.capabilities = WITH_TOKEN_RANGES._replace(notifies_contention=self.cached)
        return backend


class Sticky(Passing):
    """A machine keeps a lease until another one asks."""

    cached = True


class StickyOnRedis(PassingOnRedis):
    """The same on Redis."""

    cached = True

    def make_model(self) -> Any:
        """Without replicas."""
        model = super().make_model()
        self.settings = self.settings._replace(replicas=0)
        return model
