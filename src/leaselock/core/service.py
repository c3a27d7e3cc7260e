"""One client: its desks, what it can be asked, and its end.

A desk is one way of locking (a protocol) with its own books and its own keeper; most clients
have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.core.backend import Examine, Finding, Prepare, Sweep
from leaselock.core.effects import Call
from leaselock.core.handle import Handle
from leaselock.core.holdings import Holdings
from leaselock.core.keeper import Keeper
from leaselock.core.lease import Hold
from leaselock.core.mutex import Mutex, Terms
from leaselock.core.names import (
    checked_label,
    checked_lease,
    checked_name,
    checked_passes,
    checked_seconds,
    checked_timeout,
    checked_token,
)
from leaselock.core.sight import Holder, Report, holder_of, reports_of
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.core.backend import Backend
    from leaselock.core.effects import Env
    from leaselock.core.local import Local


# How many tokens a sticky lease reserves: as often it can be taken again without a question.
SPARE = 1024


class Desk(NamedTuple):
    """One way of locking, and what this client holds by it."""

    books: Holdings
    keeper: Keeper


class Service:
    """What a client can do, as processes."""

    def __init__(
        self,
        env: Env,
        backend: Callable[[str | None], Backend],
        *,
        protocol: str | None = None,
        label: object,
        op_timeout: object,
        passes: object = 0,
    ) -> None:
        self.env = env
        self.backend = backend
        self.protocol = protocol
        self.label = checked_label(label)
        self.patience = checked_seconds(op_timeout, "op_timeout", least=0.01, most=3600.0)
        self.passes = checked_passes(passes)
        self.closed = False
        self.desks: dict[str | None, Desk] = {}
        self.layers: dict[Holdings, Local] = {}
        self.desk(None)

    def desk(self, protocol: str | None) -> Desk:
        """The desk for a protocol; None is the store's default. ValueError for an unknown one."""
        protocol = protocol or self.protocol
        desk = self.desks.get(protocol)
        if desk is None:
            books = Holdings(self.env, self.backend(protocol), self.patience, self.label)
            # One desk, even when two threads are here at once, and none of a client that is closed.
            desk = self.desks.setdefault(protocol, Desk(books, Keeper(books)))
            books.closed = self.closed
        return desk

    def mutex(
        self,
        name: object,
        *,
        lease: object,
        renew: bool,
        timeout: object,
        reentrant: bool,
        protocol: str | None,
        label: object,
        passes: object = None,
        sticky: bool = False,
    ) -> Mutex:
        """A lock by its name; nothing is asked of the store."""
        terms = Terms(
            checked_lease(lease),
            bool(renew),
            checked_timeout(timeout),
            bool(reentrant),
            checked_label(label),
            SPARE if sticky else 1 + (self.passes if passes is None else checked_passes(passes)),
            bool(sticky),
        )
        desk = self.desk(protocol)
        if terms.tokens > 1:
            self._share(desk.books, terms.sticky)
        return Mutex(desk.books, desk.keeper, checked_name(name), terms)

    def _share(self, books: Holdings, sticky: bool) -> None:
        """From now on, threads or tasks may pass leases among themselves at this desk."""
        can = books.backend.capabilities
        if not (can.calls if sticky else can.reserves):
            raise ValueError(
                "passes= and sticky= are for stores and protocols that can reserve fencing tokens "
                "ahead: memory, and Redis by hash or string (for sticky= without replicas)"
            )
        from leaselock.core.local import Local  # only who wants it waits for its loading

        # One layer, even when two threads are here at once.
        local = self.layers.setdefault(books, Local(self.env, books.backend, books.anew))
        local.report_to(books.deprived)
        books.backend = local

    async def locks(self, pattern: str) -> list[Report]:
        """All locks held or waited for whose names match."""
        books = self.desk(None).books
        return reports_of(await books.look(None, pattern))

    async def evict(self, name: object, token: object) -> Holder | None:
        """Take the lock from its holder; with *token*, only from that grant."""
        books = self.desk(None).books
        wanted = None if token is None else checked_token(token)
        text = checked_name(name)
        broken = await books.backend.evict(text, wanted, books.answer_by())
        if broken.held is not None and not broken.done:
            found = holder_of(broken.held, None)
            raise NotHeld(
                text,
                f"{text!r} was not broken: not token {wanted} holds it, but token "
                f"{broken.held.token} of {found}",
            )
        return holder_of(broken.held, None)

    async def adopt(self, name: object, token: object) -> Handle:
        """Take over a detached hold, by the token that it was granted with."""
        books, keeper = self.desk(None)
        text, wanted = checked_name(name), checked_token(token)
        asked = self.env.now()
        (sight,) = await books.look(text, "*")
        held = sight.held
        if held is None or not held.named(wanted) or held.tie != "lease":
            raise NotHeld(text, f"no detached lease on {text!r} has the token {wanted}")
        await keeper.start()
        remaining = sight.remaining or 0.0
        claim = books.claim(text, remaining, None, self.env.caller())
        drift, margin = books.backend.capabilities[:2]
        until = asked + remaining * (1.0 - drift) - margin
        hold = Hold(claim._replace(holder=held.holder), wanted, until, renew=False)
        hold.ours = False
        books.add(hold, None, asked)
        return Handle(books, hold)

    async def examine(self) -> list[Finding]:
        """How the store is set up; that it cannot be asked is a finding, too."""
        try:
            findings: Sequence[Finding] = await self._ask_the_store(Examine())
        except StoreError as error:
            return [Finding("fail", str(error))]
        return list(findings)

    async def prepare(self, dry: bool) -> list[str]:
        """Make what the store needs; what was done."""
        done: Sequence[str] = await self._ask_the_store(Prepare(dry))
        return list(done)

    async def sweep(self) -> int:
        """Remove what nobody needs any more; how much that was."""
        count: int = await self._ask_the_store(Sweep())
        return count

    async def _ask_the_store(self, request: object) -> Any:
        return await Call("store", request, self.desk(None).books.answer_by())

    def abandon(self, reason: str, ours: bool) -> None:
        """Nobody here holds anything any more; give back what is *ours* and no parent's."""
        for desk in self.desks.values():
            desk.books.abandon(reason, ours)

    async def close(self) -> None:
        """Wake and end what waits, give back what is held, and stop the keepers."""
        until = self.env.now() + self.patience
        self.closed = True
        for desk in list(self.desks.values()):
            if not desk.books.closed:
                await desk.books.close(until)
                if desk.books in self.layers:
                    await self.layers[desk.books].close(until)
                await desk.keeper.finish(until)
