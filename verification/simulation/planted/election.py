"""Planted bugs of elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from verification.simulation.plant import planted

from leaselock._backends.memory.store import MemoryRow
from leaselock._core.client.election import Term
from leaselock._core.contract.backend import Watch
from leaselock._core.contract.effects import Sleep
from leaselock._core.rows.queue import QueueBackend

if TYPE_CHECKING:
    import pytest

    from leaselock._core.client.election import Candidacy
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.effects import Request

R = TypeVar("R")


@planted("election")
def resigned_body_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A leader whose body can be interrupted resigns without waiting for the end of the body."""
    real = Term.resign

    async def resign(self: Term) -> bool:
        assert self.handle is not None
        self.handle.interrupter = None
        self.handle.hold.interrupters = ()
        return await real(self)

    patch.setattr(Term, "resign", resign)


@planted("election")
def resigned_lease_stays_valid(patch: pytest.MonkeyPatch) -> None:
    """A leader that resigns releases the lock, but its body may still act on the lease."""

    async def resign(self: Term) -> bool:
        handle = self.handle
        assert handle is not None
        registry = handle.registry
        until = registry.env.now() + registry.op_timeout
        return await registry.backend.release(handle.hold.claim, tombstone=False, until=until)

    patch.setattr(Term, "resign", resign)


@planted("election")
def run_ends_with_the_term(patch: pytest.MonkeyPatch) -> None:
    """`run` returns when the leadership is lost, instead of campaigning again."""
    real = Term.__init__

    def begin(self: Term, candidacy: Candidacy) -> None:
        real(self, candidacy)
        self.__class__ = Whole

    class Whole(Term):
        """A term that is never cut short."""

        @property
        def cut_short(self) -> bool:
            """No."""
            return False

        @cut_short.setter
        def cut_short(self, cut: bool) -> None:
            """Ignored."""

    patch.setattr(Term, "__init__", begin)


@planted("election")
def term_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """A leader does not record its term, so another thread cannot resign for it."""
    real = Term.begin

    async def begin(self: Term) -> LeaseHandle:
        handle = await real(self)
        self.candidacy.terms.clear()
        return handle

    patch.setattr(Term, "begin", begin)


@planted("election")
def watcher_discards_a_wakeup(patch: pytest.MonkeyPatch) -> None:
    """A wake-up that arrives while a watcher looks is discarded."""
    real = QueueBackend.request

    async def request(self: QueueBackend, request: Request[R], until: float) -> R:
        reply = await real(self, request, until)
        if isinstance(request, Watch):
            await Sleep(0.0)
            self.signals[request.claim.id].clear()
        return reply

    patch.setattr(QueueBackend, "request", request)


@planted("election")
def watcher_misses_a_release(patch: pytest.MonkeyPatch) -> None:
    """Watchers are notified when a hold begins, but not when it ends."""
    real = MemoryRow.remove

    def remove(self: MemoryRow, hold_id: str) -> None:
        watchers, self.entry.watchers = self.entry.watchers, {}
        real(self, hold_id)
        self.entry.watchers = watchers

    patch.setattr(MemoryRow, "remove", remove)


@planted("election")
def body_resigns_in_vain(patch: pytest.MonkeyPatch) -> None:
    """A leader whose own body resigns is told that it did, and leads on."""
    resign = Term.resign

    async def pretend(self: Term) -> bool:
        handle = self.handle
        if handle is not None and handle.registry.env.owner() is self.leader:
            return True
        return await resign(self)

    patch.setattr(Term, "resign", pretend)
