"""What is between one party and its store, and what can befall it there.

Law: a fault strikes at the k-th thing that the party does to the store from now on: at a message,
where there is a network; where there is none, at a call into SQLite or the kernel.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from leaselock.testing.hazards.crew import Actor
    from leaselock.testing.hazards.places import Place
    from leaselock.testing.proxy import Fault


class Snag(Protocol):
    """Something that waits for its moment."""

    def struck(self) -> bool:
        """Whether it has come."""
        ...

    def pass_on(self) -> None:
        """Let what was held go on."""
        ...

    def withdraw(self) -> None:
        """Forget it, if it has not struck."""
        ...


class OnTheWire:
    """A fault in the proxies of one party."""

    def __init__(self, proxies: list[Proxy], action: str, nth: int) -> None:
        self.faults: list[tuple[Proxy, Fault]] = [
            (proxy, proxy.plan(action, nth=nth)) for proxy in proxies
        ]

    def struck(self) -> bool:
        """Whether it has struck anywhere."""
        return any(fault.struck.is_set() for _, fault in self.faults)

    def pass_on(self) -> None:
        """Deliver what was held."""
        for _, fault in self.faults:
            if fault.struck.is_set():
                fault.pass_on()

    def withdraw(self) -> None:
        """Plan it no more."""
        for proxy, fault in self.faults:
            proxy.withdraw(fault)


class InTheProcess:
    """The process itself stops, before the k-th step."""

    def __init__(self, actor: Actor, nth: int) -> None:
        self.actor = actor
        actor.ask("strike", nth, int(signal.SIGSTOP))

    def struck(self) -> bool:
        """Whether it has stopped."""
        return self.actor.state() == "T"

    def pass_on(self) -> None:
        """Let it go on."""
        self.actor.signal(signal.SIGCONT)

    def withdraw(self) -> None:
        """It is idle, and forgets."""
        self.actor.ask("strike", 0, int(signal.SIGSTOP))


class Line:
    """The proxies between one party and the servers of its store; none for a file."""

    def __init__(self, place: Place, url: str) -> None:
        self.proxies: list[Proxy] = []
        self.url = url
        if place.networked:
            self.proxies = [Proxy(port, host) for host, port in place.addresses()]
            self.url = place.by_way_of([proxy.port for proxy in self.proxies])

    def requests(self) -> int:
        """How many messages have come from the party so far."""
        return sum(proxy.requests for proxy in self.proxies)

    def cut(self) -> None:
        """End all connections, as the kernel does for a process that has died."""
        for proxy in self.proxies:
            proxy.cut_all()

    def close(self) -> None:
        """Take it down."""
        for proxy in self.proxies:
            proxy.stop()
