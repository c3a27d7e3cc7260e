"""A client: its locks, its administration, and its end.

A context is one way of locking (a protocol) with a registry and a renewer of its own. Most clients
have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import validity
from leaselock.core.acquisition import LockOptions
from leaselock.core.backend import Finding
from leaselock.core.hold_registry import HoldRegistry
from leaselock.core.inspection import Holder, LockInfo, holder_of, lock_infos
from leaselock.core.lease_handle import LeaseHandle
from leaselock.core.mutex import Mutex
from leaselock.core.renewer import Renewer
from leaselock.core.validation import (
    checked_label,
    checked_lease,
    checked_local_handoffs,
    checked_name,
    checked_owner,
    checked_seconds,
    checked_switch,
    checked_timeout,
    checked_token,
    refuse,
)
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Backend
    from leaselock.core.effects import Env
    from leaselock.core.local_handoff import LocalHandoff


# How many tokens a cached lease reserves: it can be acquired so many times without a request.
CACHED_TOKENS = 1024


class ProtocolContext:
    """One way of locking, and what this client holds by it."""

    def __init__(self, registry: HoldRegistry) -> None:
        self.registry = registry
        self.renewer = Renewer(registry)


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
        self.op_timeout = checked_seconds(op_timeout, "op_timeout", least=0.01, most=3600.0)
        self.local_handoffs = checked_local_handoffs(local_handoffs)
        self.closed = False
        self.contexts: dict[str | None, ProtocolContext] = {}
        self.layers: dict[HoldRegistry, LocalHandoff] = {}
        self.context(None)

    def context(self, protocol: str | None) -> ProtocolContext:
        """The context of a protocol, None for the default. ValueError for an unknown one."""
        protocol = protocol or self.protocol
        context = self.contexts.get(protocol)
        if context is None:
            registry = HoldRegistry(self.env, self.backend(protocol), self.op_timeout, self.label)
            # One context, even if two threads are here at once; and a closed one if the client is.
            context = self.contexts.setdefault(protocol, ProtocolContext(registry))
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
        owner: object = None,
        **unknown: object,
    ) -> Mutex:
        """A lock by its name. The store is not asked."""
        refuse("lock", unknown)
        if local_handoffs is None:
            local_handoffs = self.local_handoffs
        handoffs = checked_local_handoffs(local_handoffs)
        options = LockOptions(
            checked_lease(lease),
            checked_switch(renew, "renew"),
            checked_timeout(timeout),
            checked_switch(reentrant, "reentrant"),
            checked_label(label),
            CACHED_TOKENS if cached else 1 + handoffs,
            checked_owner(owner),
            checked_switch(cached, "cached"),
        )
        context = self.context(protocol)
        if options.tokens > 1:
            self._share(context.registry, options.cached)
        return Mutex(context.registry, context.renewer, checked_name(name), options)

    def _share(self, registry: HoldRegistry, cached: bool) -> None:
        """From now on the threads or tasks of this client may share the leases of *registry*."""
        can = registry.backend.capabilities
        if not (can.notifies_contention if cached else can.token_ranges):
            raise ValueError(
                "local_handoffs= and cached= need a store and a protocol that can reserve fencing "
                "tokens: memory, and Redis by hash or string (for cached= without replicas)"
            )
        if registry not in self.layers:
            from leaselock.core.local_handoff import LocalHandoff  # loaded where it is used

            layer = LocalHandoff(self.env, registry.backend, registry.with_new_id)
            layer.report_to(registry.on_store_loss)
            # One layer, even if two threads are here at once.
            registry.backend = self.layers.setdefault(registry, layer)

    def state(self) -> str:
        """What `repr` says of the client besides its store."""
        held = sum(len(context.registry.held()) for context in self.contexts.values())
        words = [f" label {self.label!r}"] if self.label else [""]
        if self.closed:
            words.append("closed")
        elif held:
            words.append(f"{held} lock{'s' * (held > 1)} held")
        return ", ".join(words)

    async def locks(self, pattern: str) -> list[LockInfo]:
        """All locks that are held or waited for and match."""
        registry = self.context(None).registry
        return lock_infos(await registry.inspect(None, pattern))

    async def break_lock(self, name: object, token: object) -> Holder | None:
        """End the hold of the lock; with *token*, only the hold of that grant."""
        registry = self.context(None).registry
        wanted = None if token is None else checked_token(token)
        text = checked_name(name)
        broken = await registry.backend.break_lock(text, wanted, registry.answer_by())
        if broken.held is not None and not broken.done:
            found = holder_of(broken.held, None)
            raise NotHeld(
                text,
                f"{text!r} was not broken: its token is not {wanted} but {broken.held.token}, "
                f"of {found}",
            )
        return holder_of(broken.held, None)

    async def adopt(self, name: object, token: object) -> LeaseHandle:
        """Continue a detached lease, by the token that it was granted with."""
        context = self.context(None)
        registry = context.registry
        text, wanted = checked_name(name), checked_token(token)
        asked = self.env.now()
        (state,) = await registry.inspect(text, "*")
        held = state.held
        if held is None or not held.has_token(wanted) or held.lifetime != "lease":
            raise NotHeld(text, f"no detached lease on {text!r} has the token {wanted}")
        await context.renewer.start()
        remaining = state.remaining or 0.0
        claim = registry.claim(text, remaining, None, self.env.owner())._replace(id=held.id)
        until = validity.valid_until(registry.backend.capabilities, asked, remaining)
        hold = registry.add(claim, wanted, until, asked=asked, renew=False, owner=None)
        return LeaseHandle(registry, hold)

    async def doctor(self) -> list[Finding]:
        """Examine the configuration of the store. A store that cannot be reached is a finding."""
        try:
            registry = self.context(None).registry
            findings = await registry.backend.doctor(registry.answer_by())
        except StoreError as error:
            return [Finding("fail", str(error))]
        return list(findings)

    async def setup(self, dry: bool) -> list[str]:
        """Create what the store needs; return what was done."""
        registry = self.context(None).registry
        return list(await registry.backend.setup(dry, registry.answer_by()))

    async def gc(self) -> int:
        """Remove records that are no longer needed; return how many."""
        registry = self.context(None).registry
        return await registry.backend.collect_garbage(registry.answer_by())

    def abandon(self, reason: str, ours: bool) -> None:
        """Lose all holds; release those that are *ours* and not a parent's."""
        for context in self.contexts.values():
            context.registry.abandon(reason, ours)

    async def close(self) -> None:
        """End all waits, release all holds, and stop the renewers."""
        until = self.env.now() + self.op_timeout
        self.closed = True
        for context in list(self.contexts.values()):
            if not context.registry.closed:
                await context.registry.close(until)
                if context.registry in self.layers:
                    await self.layers[context.registry].close(until)
                await context.renewer.finish(until)
