"""Faults between one program and its store.

A fault is triggered by the program's k-th access to the store from now on: a message, where there
is a network, otherwise a call into SQLite or the kernel.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

from testkit.proxy import Proxy

if TYPE_CHECKING:
    from testkit.proxy import Fault
    from verification.hazards.process_pool import WorkerProcess
    from verification.hazards.stores import HazardStore


class PlannedFault(Protocol):
    """A fault that waits for its trigger."""

    def triggered(self) -> bool:
        """Return whether it has been triggered."""
        ...

    def release(self) -> None:
        """Let a held message or a stopped process continue."""
        ...

    def withdraw(self) -> None:
        """Cancel it, if it has not been triggered."""
        ...


class NetworkFault:
    """A fault in the proxies of one program."""

    def __init__(self, proxies: list[Proxy], action: str, nth: int) -> None:
        self.faults: list[tuple[Proxy, Fault]] = [
            (proxy, proxy.plan(action, nth=nth)) for proxy in proxies
        ]

    def triggered(self) -> bool:
        """Return whether it has been triggered in any proxy."""
        return any(fault.injected.is_set() for _, fault in self.faults)

    def release(self) -> None:
        """Deliver held messages."""
        for _, fault in self.faults:
            if fault.injected.is_set():
                fault.pass_on()

    def withdraw(self) -> None:
        """Cancel it in every proxy."""
        for proxy, fault in self.faults:
            proxy.withdraw(fault)


class ProcessFault:
    """The process itself stops, before the k-th access."""

    def __init__(self, worker: WorkerProcess, nth: int) -> None:
        self.worker = worker
        worker.run("signal_at_call", nth, int(signal.SIGSTOP))

    def triggered(self) -> bool:
        """Return whether the process has stopped."""
        return self.worker.state() == "T"

    def release(self) -> None:
        """Continue the process."""
        self.worker.signal(signal.SIGCONT)

    def withdraw(self) -> None:
        """Cancel it; the process is idle."""
        self.worker.run("signal_at_call", 0, int(signal.SIGSTOP))


class ProxiedConnection:
    """The proxies between one program and the servers of its store; none for a file."""

    def __init__(self, store: HazardStore, url: str) -> None:
        self.proxies: list[Proxy] = []
        self.url = url
        if store.networked:
            self.proxies = [Proxy(port, host) for host, port in store.addresses()]
            self.url = store.url_through([proxy.port for proxy in self.proxies])

    def requests(self) -> int:
        """Return the number of messages from the program so far."""
        return sum(proxy.requests for proxy in self.proxies)

    def cut(self) -> None:
        """Close all connections, as the kernel does for a dead process."""
        for proxy in self.proxies:
            proxy.cut_all()

    def close(self) -> None:
        """Stop the proxies."""
        for proxy in self.proxies:
            proxy.stop()
