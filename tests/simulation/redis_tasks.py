"""A simulated client of Redis as tasks have it: one link for all.

Who of them listens and who looks is the library's own text, `backends.redis.listening`, on a loop
that has timers and futures, and no more than it needs of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.redis_client import Client

from leaselock.backends.redis.listening import Listening
from leaselock.core.backend import Acquire, Busy, Release, Released
from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.redis_net import Link, Network
    from tests.simulation.world import Machine

    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address, Waiting
    from leaselock.core.backend import Claim


# For so long one connection is waited for, by all who want it.
CONNECTING = 1.0


class Loop:
    """What the library wants of a loop: timers, of a machine that may be frozen or dead."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def is_closed(self) -> bool:
        """It ends with its machine."""
        return False

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """A timer."""
        return Timer(self.machine, seconds, action)


class Timer:
    """It can be cancelled."""

    def __init__(self, machine: Machine, seconds: float, action: Callable[[], None]) -> None:
        self.machine = machine
        self.action: Callable[[], None] | None = action
        machine.world.after(seconds, self._ring)

    def cancel(self) -> None:
        """It does nothing any more."""
        self.action = None

    def _ring(self) -> None:
        machine = self.machine
        thaw = machine.frozen_until - machine.world.time
        if thaw > 0.0:
            machine.world.after(thaw, self._ring)
        elif machine.alive and self.action is not None:
            self.action()


class Future:
    """What a waiting task waits for."""

    def __init__(self, reply: Callable[[object], None]) -> None:
        self.reply: Callable[[object], None] | None = reply

    def done(self) -> bool:
        """Whether it has been answered."""
        return self.reply is None

    def get_loop(self) -> Future:
        """Its loop, of which only this is asked: whether it is closed."""
        return self

    def is_closed(self) -> bool:
        """Never."""
        return False

    def set_result(self, result: None) -> None:
        """Answer."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(result)


class Tasks(Client):
    """One link for all, and the library's own text about who of them listens, and who looks."""

    def __init__(self, net: Network, machine: Machine, settings: Settings, form: str) -> None:
        super().__init__(net, machine, settings, form)
        self.listening = Listening(machine.now, self.talks.heard)
        self.connecting: dict[Address, list[Callable[[Link | None, bool], None]]] = {}

    def address_of(self, claim: Claim) -> str:
        """All waiting tasks of a client share one."""
        return claim.client

    def waits(self, request: object) -> bool:
        """Whether the claim stands in the queue, or should at once: where others of ours do."""
        if not isinstance(request, Acquire):
            return False
        claim, listening = request.claim, self.listening
        return claim.id in listening.waiting or (request.wait and claim.name in listening.crowds)

    def answered(self, request: object, answer: object) -> object:
        """What the task is told."""
        if isinstance(request, Release) and isinstance(answer, Released):
            self.listening.forget(request.claim.id, gave_up=answer.was != "held")
        elif isinstance(request, Acquire) and isinstance(answer, Busy):
            return self.listening.watched(request.claim, answer)
        return answer

    def link(
        self,
        address: Address,
        waiting: Waiting | None,
        then: Callable[[Link | None, bool], None],
    ) -> None:
        """The wire."""
        wires = [link for link in self.idle.get(address, []) if link.open]
        if wires:
            then(wires[0], True)
            return
        askers = self.connecting.setdefault(address, [])
        askers.append(then)
        if len(askers) == 1:
            self.net.connect(self.machine, address, self, partial(self._connected, address, askers))
            self.after(CONNECTING, lambda: self._connected(address, askers, None))

    def _connected(self, address: Address, askers: list[Any], link: Link | None) -> None:
        if self.connecting.get(address) is not askers:
            if link is not None:
                link.close()
            return
        if link is not None:
            link.loop = Loop(self.machine)
            self.idle[address] = [link]
        for then in self.connecting.pop(address):
            then(link, True)

    def listen(self, link: Link, waiting: Waiting, new: bool) -> tuple[str, ...]:
        """Have the channels listened to, before what is sent next."""
        self.listening.listen(link, waiting)  # type: ignore[arg-type]
        return ()

    def lay_down(self, link: Link) -> None:
        """It lies there all the time."""

    def abandoned(self, link: Link | None, asked: float = 0.0) -> None:
        """The wire stays, unless nothing has come over it for so long."""
        if link is not None and link.last_heard < asked:
            link.close()
            self.lost(link)

    def heard(self, link: Link, channel: str, word: str) -> None:
        """A message."""
        self.listening.heard(link, channel, word)  # type: ignore[arg-type]

    def lost(self, link: Link) -> None:
        """Whoever listened here must look."""
        self.listening.lost(link)  # type: ignore[arg-type]

    def await_wakeup(self, holder: str, until: float, reply: Callable[[object], None]) -> None:
        """Wait for a message, or for *until*."""
        waiter = self.listening.waiting.get(holder)
        if waiter is None or waiter.heard or not waiter.crowd.wire.open:
            reply(None)
            return
        waiter.future = Future(reply)  # type: ignore[assignment]
        if until < FOREVER:
            Timer(self.machine, max(0.0, until - self.machine.now()), waiter.wake)

    def forget(self, holder: str) -> None:
        """The claim waits no more."""
        gave_up = self.talks.forget(holder)
        self.listening.forget(holder, gave_up=gave_up)

    def wake_all(self) -> None:
        """Wake every waiting task."""
        self.listening.wake_all()
