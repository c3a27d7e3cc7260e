"""What must be true of Redis at every step of a story, and at its end.

The judge looks at the keys themselves: who holds by them, whether that will end, who waits there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import CALM_STALL, Judge, Violation

from holdfast.backends.redis.hash import CLAIM_MS, LOOK_AGAIN_MS
from holdfast.backends.redis.keys import holder_of, keys_of, wake_channel
from holdfast.core.effects import FOREVER
from holdfast.core.lease import State

if TYPE_CHECKING:
    from holdfast.core.lease import Hold

# Beside the lease: a claim time for each waiter that may be frozen or whose link is dead without a
# word, the looks that follow, a server that is away or busy, and a clock that is set back.
STALL = (8 * CLAIM_MS + LOOK_AGAIN_MS) / 1000 + 20.0


class RedisJudge(Judge):
    """Looks at every step."""

    def __init__(self, story: Any, calm: bool, longest: float) -> None:
        super().__init__(story.world, story.model, calm, longest)
        self.story = story
        self.stall = STALL + longest
        self.given_up_by: dict[str, float] = {}
        # Who waits for which lock, and when that was seen first.
        self.lines: dict[str, dict[str, int]] = {}
        self.holders: dict[str, str] = {}
        self.granted: set[tuple[str, str, bytes]] = set()
        self.newest: dict[str, int] = {}

    def check(self) -> None:
        """After each step."""
        self.check_time()
        for name, service in self.services.items():
            if self.machines[name].alive:
                for orphan in service.desks[None].books.orphans.values():
                    self.given_up_by[orphan.claim.holder] = orphan.until
        believers = self.believers()
        for name in self.story.names:
            self._check_lock(name, believers)

    def _check_order(self, hold: Hold) -> None:
        """Who was cut off loses its place; so the order is checked where nothing goes wrong."""
        if self.calm:
            holder, line = hold.claim.holder, self.lines.get(hold.claim.name, {})
            place = line.get(holder, self.tickets)
            if any(earlier < place for earlier in line.values()):
                raise Violation(f"{holder} overtook somebody who came before")

    def _data(self) -> Any:
        return self.story.net.hosts[self.story.master].server.data

    def _holder(self, name: str) -> str:
        """Who has the lock by its key."""
        data, key = self._data(), keys_of(name, False).lock.encode()
        value = data.values.get(key)
        if value is None:
            return ""
        if key not in data.ends:
            raise Violation(f"{name!r} is held without an end")
        if data.ends[key] < data.micros() // 1000:
            return ""
        owner = value if isinstance(value, bytes) else next(iter(value))
        return holder_of(owner.decode())

    def _waiters(self, name: str) -> list[str]:
        queue = self._data().values.get(keys_of(name, False).queue.encode())
        members = queue.in_order() if queue else []
        return [holder_of(member.decode().partition("\n")[0]) for member in members]

    def _check_lock(self, name: str, believers: dict[str, str]) -> None:
        """What the keys say is what somebody wants."""
        holder = self._holder(name)
        self._check_token(name, holder)
        waiters = self._waiters(name)
        if holder and not self.shows:
            self._check_holder(name, holder)
        line = self.lines.get(name, {})
        if holder in line and self.holders.get(name) != holder and not self.shows:
            self._check_handed(name, holder)
        self.holders[name] = holder
        self.lines[name] = {who: self._since(line, who) for who in (*waiters, holder) if who}
        self._check_stall(name, holder, waiters, believers)

    def _since(self, line: dict[str, int], holder: str) -> int:
        self.tickets += 1
        return line.get(holder, self.tickets)

    def _check_token(self, name: str, holder: str) -> None:
        """Whatever was lost: a new grant's token is above all before, so that a fence knows."""
        record = self._data().values.get(keys_of(name, False).record.encode(), b"")
        word = record.partition(b"\n")[0]
        grant = (name, holder, word)
        if not holder or not word.isdigit() or grant in self.granted:
            return
        self.granted.add(grant)
        if int(word) <= self.newest.get(name, 0):
            raise Violation(f"a new grant of {name!r} has token {int(word)}, which does not rise")
        self.newest[name] = int(word)

    def _check_handed(self, name: str, holder: str) -> None:
        """A waiter whose channel nobody listens to is passed over, unless it asks itself."""
        server = self.story.net.hosts[self.story.master].server
        wake = wake_channel(keys_of(name, False).lock)
        addresses = (holder, holder.partition(":")[0])
        asks = self.story.net.asker == holder.partition(".")[0]
        if not asks and not any(
            server.channels.get(f"{wake}{address}".encode()) for address in addresses
        ):
            raise Violation(f"{name!r} was handed to {holder}, which does not listen")

    def _check_holder(self, name: str, holder: str) -> None:
        hold = self.believed.get(holder)
        if hold is not None and hold.state is State.FREE:
            raise Violation(f"{holder} was released, and holds {name!r} again")
        if hold is None and self._is_nobody(holder):
            raise Violation(f"{holder} holds {name!r} for nobody")

    def _is_nobody(self, holder: str) -> bool:
        # A machine names its clients after itself.
        name = holder.partition(".")[0]
        machine = self.machines[name]
        if not machine.alive:
            return False
        books = self.services[name].desks[None].books
        gone = not books.crowd.active and holder not in books.orphans
        return gone and not self._gave_up(holder)

    def _gave_up(self, holder: str) -> bool:
        """Nobody tries for ever to give back what ends with its lease, or is passed over. And data
        that is old has old waiters.
        """
        machine = self.machines[holder.partition(".")[0]]
        return self.shows or self.given_up_by.get(holder, FOREVER) <= machine.now()

    def _check_stall(
        self,
        name: str,
        holder: str,
        waiters: list[str],
        believers: dict[str, str],
    ) -> None:
        waits = any(self._wants(waiter) for waiter in waiters)
        if not waits or name in believers:
            self.idle_since.pop(name, None)
            return
        since, of = self.idle_since.get(name, (0.0, None))
        if of != holder:
            since = self.world.time
            self.idle_since[name] = (since, holder)
        # An extension may be in time for the server, and too late for who asked for it.
        hold = self.believed.get(holder)
        lost = hold is not None and hold.state is State.LOST
        # That a lease has run out, its waiters learn when they look.
        quiet = LOOK_AGAIN_MS / 1000 if self._has_run_out(name) else 0.0
        limit = quiet + CALM_STALL if self.calm and not lost else self.stall
        if self.world.time - since > limit:
            raise Violation(f"{name!r} was idle for {limit} s while somebody waited")

    def _has_run_out(self, name: str) -> bool:
        data, key = self._data(), keys_of(name, False).lock.encode()
        return key in data.values and data.ends[key] < data.micros() // 1000

    def _wants(self, holder: str) -> bool:
        machine = self.machines[holder.partition(".")[0]]
        able = machine.alive and machine.frozen_until <= self.world.time
        return able and not self._gave_up(holder)

    def at_rest(self) -> None:
        """Everybody was served, and nothing is left."""
        self.all_were_served()
        for name in self.story.names:
            holder = self._holder(name)
            if holder:
                raise Violation(f"{name!r} is held by nobody: {holder}")
            if any(map(self._wants, self._waiters(name))):
                raise Violation(f"somebody is left in the queue of {name!r}")
        for name, service in self.services.items():
            if self.machines[name].alive and service.desks[None].books.orphans:
                raise Violation("an orphan was never given back")
