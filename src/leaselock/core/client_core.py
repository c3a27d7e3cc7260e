"""One client: its desks, what it can be asked, and its end.

A desk is one way of locking (a protocol) with its own books and its own keeper; most clients
have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.core.backend import Finding
from leaselock.core.hold import Hold
from leaselock.core.hold_registry import HoldRegistry
from leaselock.core.inspection import Holder, LockInfo, holder_of, reports_of
from leaselock.core.lease_handle import LeaseHandle
from leaselock.core.mutex import LockOptions, Mutex
from leaselock.core.renewer import Renewer
from leaselock.core.validation import (
    checked_label,
    checked_lease,
    checked_local_handoffs,
    checked_name,
    checked_seconds,
    checked_timeout,
    checked_token,
)
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Backend
    from leaselock.core.effects import Env
    from leaselock.core.local import Local


# How many tokens a sticky lease reserves: as often it can be taken again without a question.
SPARE = 1024


class ProtocolContext(NamedTuple):
    """One way of locking, and what this client holds by it."""

    registry: HoldRegistry
    renewer: Renewer


class ClientCore:
    """What a client can do, as processes."""

    def __init__(
        self,
        env: Env,
        backend: Callable[[str | None], Backend],
        *,
        protocol: str | None = None,
        label: object,
        op_timeout: object,
        local_handoffs: object = 0,
    ) -> None:
        self.env = env
        self.backend = backend
        self.protocol = protocol
        self.label = checked_label(label)
        self.patience = checked_seconds(op_timeout, "op_timeout", least=0.01, most=3600.0)
        self.local_handoffs = checked_local_handoffs(local_handoffs)
        self.closed = False
        self.contexts: dict[str | None, ProtocolContext] = {}
        self.layers: dict[HoldRegistry, Local] = {}
        self.context(None)

    def context(self, protocol: str | None) -> ProtocolContext:
        """The desk for a protocol; None is the store's default. ValueError for an unknown one."""
        protocol = protocol or self.protocol
        context = self.contexts.get(protocol)
        if context is None:
            registry = HoldRegistry(self.env, self.backend(protocol), self.patience, self.label)
            # One desk, even when two threads are here at once, and none of a client that is closed.
            context = self.contexts.setdefault(
                protocol, ProtocolContext(registry, Renewer(registry))
            )
            registry.closed = self.closed
        return context

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
        local_handoffs: object = None,
        cached: bool = False,
    ) -> Mutex:
        """A lock by its name; nothing is asked of the store."""
        terms = LockOptions(
            checked_lease(lease),
            bool(renew),
            checked_timeout(timeout),
            bool(reentrant),
            checked_label(label),
            SPARE
            if cached
            else 1
            + (
                self.local_handoffs
                if local_handoffs is None
                else checked_local_handoffs(local_handoffs)
            ),
            bool(cached),
        )
        context = self.context(protocol)
        if terms.tokens > 1:
            self._share(context.registry, terms.cached)
        return Mutex(context.registry, context.renewer, checked_name(name), terms)

    def _share(self, registry: HoldRegistry, cached: bool) -> None:
        """From now on, threads or tasks may pass leases among themselves at this desk."""
        can = registry.backend.capabilities
        if not (can.notifies_contention if cached else can.token_ranges):
            raise ValueError(
                "local_handoffs= and cached= are for stores and protocols that can reserve fencing tokens "
                "ahead: memory, and Redis by hash or string (for cached= without replicas)"
            )
        from leaselock.core.local import Local  # only who wants it waits for its loading

        # One layer, even when two threads are here at once.
        local = self.layers.setdefault(
            registry, Local(self.env, registry.backend, registry.with_new_id)
        )
        local.report_to(registry.on_store_loss)
        registry.backend = local

    async def locks(self, pattern: str) -> list[LockInfo]:
        """All locks held or waited for whose names match."""
        registry = self.context(None).registry
        return reports_of(await registry.inspect(None, pattern))

    async def break_lock(self, name: object, token: object) -> Holder | None:
        """Take the lock from its holder; with *token*, only from that grant."""
        registry = self.context(None).registry
        wanted = None if token is None else checked_token(token)
        text = checked_name(name)
        broken = await registry.backend.break_lock(text, wanted, registry.answer_by())
        if broken.held is not None and not broken.done:
            found = holder_of(broken.held, None)
            raise NotHeld(
                text,
                f"{text!r} was not broken: not token {wanted} holds it, but token "
                f"{broken.held.token} of {found}",
            )
        return holder_of(broken.held, None)

    async def adopt(self, name: object, token: object) -> LeaseHandle:
        """Take over a detached hold, by the token that it was granted with."""
        registry, renewer = self.context(None)
        text, wanted = checked_name(name), checked_token(token)
        asked = self.env.now()
        (sight,) = await registry.inspect(text, "*")
        held = sight.held
        if held is None or not held.named(wanted) or held.lifetime != "lease":
            raise NotHeld(text, f"no detached lease on {text!r} has the token {wanted}")
        await renewer.start()
        remaining = sight.remaining or 0.0
        claim = registry.claim(text, remaining, None, self.env.owner())
        drift, margin = registry.backend.capabilities[:2]
        until = asked + remaining * (1.0 - drift) - margin
        hold = Hold(claim._replace(id=held.id), wanted, until, renew=False)
        hold.owned = False
        registry.add(hold, None, asked)
        return LeaseHandle(registry, hold)

    async def doctor(self) -> list[Finding]:
        """How the store is set up; that it cannot be asked is a finding, too."""
        try:
            registry = self.context(None).registry
            findings = await registry.backend.doctor(registry.answer_by())
        except StoreError as error:
            return [Finding("fail", str(error))]
        return list(findings)

    async def setup(self, dry: bool) -> list[str]:
        """Make what the store needs; what was done."""
        registry = self.context(None).registry
        return list(await registry.backend.setup(dry, registry.answer_by()))

    async def gc(self) -> int:
        """Remove what nobody needs any more; how much that was."""
        registry = self.context(None).registry
        return await registry.backend.collect_garbage(registry.answer_by())

    def abandon(self, reason: str, ours: bool) -> None:
        """Nobody here holds anything any more; give back what is *ours* and no parent's."""
        for context in self.contexts.values():
            context.registry.abandon(reason, ours)

    async def close(self) -> None:
        """Wake and end what waits, give back what is held, and stop the keepers."""
        until = self.env.now() + self.patience
        self.closed = True
        for context in list(self.contexts.values()):
            if not context.registry.closed:
                await context.registry.close(until)
                if context.registry in self.layers:
                    await self.layers[context.registry].close(until)
                await context.renewer.finish(until)
