"""The election of a leader: of the clients that campaign for a name, one leads at a time.

The leader is the holder of the lock of that name, and its fencing token is its term. A client that
campaigns waits in the queue of the lock.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from leaselock._core.client.hold import State
from leaselock._core.client.mutex import Mutex
from leaselock._core.contract.effects import FOREVER, CallUser, Signal, Wait
from leaselock.errors import ClientClosed, LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import WeakValueDictionary

    from leaselock._core.client.inspection import Holder
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.watching import Watcher
    from leaselock._core.contract.effects import Owner

RESIGNED = "this process has resigned"
# Seconds within which a client campaigns again after a loss, at a random moment.
JITTER = 0.5


class Candidacy:
    """One client's part in an election."""

    def __init__(self, mutex: Mutex, terms: WeakValueDictionary[str, Term]) -> None:
        self.mutex = mutex
        # `run` campaigns with this: it waits for the store, however long that is out of reach.
        options = mutex.options._replace(on_outage="wait", outage_timeout=FOREVER)
        self.patient = Mutex(mutex.registry, mutex.renewer, mutex.name, options)
        self.registry = mutex.registry
        # The terms in which this client leads, by the name of the election, through whichever
        # object.
        self.terms = terms

    def campaign(self) -> Term:
        """A term that has not begun."""
        return Term(self)

    async def run(self, function: Callable[[Any], Any], wrap: Callable[[Any], object]) -> Any:
        """Call *function* with the lease whenever this client leads; return its result, or None
        when the client is closed. It is called again after a term that ended before it did.

        A store that is out of reach later than at the first request is waited for. Any other error
        of it is raised.
        """
        registry = self.registry
        with registry.env.exit_on_sigterm():
            try:
                # A store that cannot be used at all is an error.
                await self.mutex.holder()
            except (ClientClosed, StoreError):
                if not registry.closed:
                    raise
            while (term := await self._next_term()) is not None:
                result = await term.lead(function, wrap(term.handle))
                if not term.cut_short:
                    return result
                await self._rest(JITTER * registry.env.random())
            return None

    async def _next_term(self) -> Term | None:
        """Campaign until this client leads; None when it is closed."""
        term = Term(self)
        term.mutex = self.patient
        try:
            await term.begin()
        except ClientClosed:
            return None
        return term

    async def _rest(self, seconds: float) -> None:
        await Wait(self.registry.ending, self.registry.env.now() + seconds)

    async def leader(self) -> Holder | None:
        """The holder of the leadership, of any client."""
        holder = await self.mutex.holder()
        return None if holder is None or holder.cooling_down else holder

    def watch(self) -> Watcher:
        """A watcher of the leader."""
        return self.mutex.watch()

    async def resign(self) -> bool:
        """Give up the leadership of this client at once; return whether it led."""
        term = self.terms.get(self.mutex.name)
        return term is not None and await term.resign()


class Term:
    """One term of this client, from its campaign to its end."""

    def __init__(self, candidacy: Candidacy) -> None:
        self.candidacy = candidacy
        self.mutex = candidacy.mutex
        self.handle: LeaseHandle | None = None
        self.leader: Owner | None = None
        self.ended = Signal()
        # It ended before the work of the leader did.
        self.cut_short = False

    async def begin(self) -> LeaseHandle:
        """Campaign, and lead from now on. The body is interrupted at the end of the term, where
        that is possible.
        """
        mutex = self.mutex
        handle = await mutex.acquire(None)
        handle.add_interrupter()
        self.handle, self.leader = handle, mutex.registry.env.owner()
        self.ended.clear()
        self.candidacy.terms[mutex.name] = self
        return handle

    async def end(self, exception: BaseException | None) -> None:
        """End the term, unless it was ended by `resign`. LeaseLost if another client ended it."""
        handle = self.handle
        assert handle is not None
        try:
            await handle.end_body(exception)
        finally:
            self.ended.set()
            if self.candidacy.terms.get(handle.hold.claim.name) is self:
                del self.candidacy.terms[handle.hold.claim.name]
        if exception is None and handle.hold.state is State.LOST:
            raise handle.hold.lost(handle.registry.store)

    async def lead(self, function: Callable[[Any], Any], lease: object) -> Any:
        """Call *function*, and end the term; return its result. An exception of it is raised,
        except the interruption by the end of the term.
        """
        handle = self.handle
        assert handle is not None
        try:
            result = await CallUser(function, lease, reported=False)
        except BaseException as error:
            self.cut_short = handle.released or handle.lost()
            try:
                await self.end(error)
            except LeaseLost:
                return None
            if self.cut_short and isinstance(error, LeaseLost):
                return None
            raise
        self.cut_short = handle.released or handle.lost()
        with contextlib.suppress(LeaseLost):
            await self.end(None)
        return result

    async def resign(self) -> bool:
        """End the term from inside or outside of its body; return whether it had not ended.

        The lease is invalid from this step on. A body that can be interrupted ends first.
        """
        handle = self.handle
        assert handle is not None
        if handle.released or handle.lost():
            return False
        registry = handle.registry
        if registry.env.owner() is self.leader:
            await handle.release()
            return True
        handle.hold.lose(RESIGNED)
        registry.notify_lost(handle.hold)
        if handle.interrupter is not None:
            await Wait(self.ended, FOREVER)
            return True
        with contextlib.suppress(LeaseLost):
            await handle.release()
        return True
