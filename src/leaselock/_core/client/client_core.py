"""A client: its locks, its administration, and its end.

A context is one way of locking (a protocol) with a registry and a renewer of its own. Most clients
have one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from leaselock._core.client import validity
from leaselock._core.client.claim_registry import ClaimRegistry
from leaselock._core.client.events import Event, Listener, Listeners
from leaselock._core.client.hold import Hold, no_lock
from leaselock._core.client.inspection import Holder, LockInfo, holder_of, lock_infos
from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.client.mutex import Mutex
from leaselock._core.client.options import LockOptions
from leaselock._core.client.renewer import Renewer
from leaselock._core.client.timing import Retry, concerning
from leaselock._core.client.together import Together, merged
from leaselock._core.client.validation import (
    LONGEST_LEASE,
    checked_label,
    checked_label_from,
    checked_lease,
    checked_max_hold,
    checked_name,
    checked_outage,
    checked_owner,
    checked_permits,
    checked_seconds,
    checked_switch,
    checked_timeout,
    checked_token,
    refuse,
)
from leaselock._core.contract.backend import BreakLock, CollectGarbage, Doctor, Finding, Setup
from leaselock._core.contract.effects import FOREVER, CallUser, Sleep
from leaselock._core.contract.marks import MOST_SLOTS
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from leaselock._core.client.deadlocks import Deadlock
    from leaselock._core.client.election import Candidacy, Term
    from leaselock._core.contract.backend import Backend, Mode
    from leaselock._core.contract.effects import Env, Operation


# What a store cannot do.
KINDS: dict[Mode, str] = {
    "shared": "no read/write locks",
    "update": "no update side of its read/write locks",
    "permits": "no semaphores",
}


# What `doctor` advises for a record that cannot be read.
UNREADABLE = "remove what is named, once no program uses that lock, and find out who wrote it"
# The same for a lock that is kept by what its holder has started.
DESCENDANTS = "end these processes, or wait for them: who breaks the lock runs beside them"
# Shorter periods than a request takes make no sense.
SHORTEST_PERIOD = 0.1


class ProtocolContext:
    """One way of locking, and what this client holds by it."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry = registry
        self.renewer = Renewer(registry)
        # In which elections this client leads. A term that is garbage does not.
        self.terms: WeakValueDictionary[str, Term] = WeakValueDictionary()
        # Everything that was held is released. The registry is closed before that.
        self.closed = False


def _kept(name: str, holder: Holder) -> str:
    """What `doctor` says of a lock whose holder has ended."""
    seen = ", ".join(str(process) for process in holder.descendants if process)
    kept = f"processes that it has started: {seen}" if seen else "processes of another user"
    return f"{name!r} was acquired by {holder}, which has ended, and is kept by {kept}"


class ClientCore:
    """What a client can do, as operations."""

    def __init__(
        self,
        env: Env,
        backend: Callable[[str | None], Backend],
        *,
        protocol: str | None = None,
        label: object,
        op_timeout: object,
        store: str = "",
        notes: Sequence[Finding] = (),
        deadlock_timeout: object = None,
        label_from: object = None,
        able: Callable[[str], str] | None = None,
    ) -> None:
        self.env = env
        # Names the stores that have a mode or a capability, for messages.
        self.able = able
        self.store = store
        # What `doctor` says of the choice of the store.
        self.notes = notes
        self.backend = backend
        self.protocol = protocol
        self.label = checked_label(label)
        self.label_from_caller = checked_label_from(label_from)
        self.op_timeout = checked_seconds(op_timeout, "op_timeout", least=0.01, most=3600.0)
        self.deadlock_timeout: float | None = None
        if deadlock_timeout is not None:
            self.deadlock_timeout = checked_seconds(
                deadlock_timeout, "deadlock_timeout", least=0.01, most=3600.0
            )
        self.closed = False
        self.listeners = Listeners()
        self.note: Callable[[], str] | None = None
        self.check_acquire: Callable[[], None] | None = None
        self.contexts: dict[str | None, ProtocolContext] = {}
        self.context(None)

    def context(self, protocol: str | None) -> ProtocolContext:
        """The context of a protocol, None for the default. ValueError for an unknown one."""
        protocol = protocol or self.protocol
        context = self.contexts.get(protocol)
        if context is None:
            registry = ClaimRegistry(self.env, self.backend(protocol), self.op_timeout, self.label)
            registry.listeners, registry.note = self.listeners, self.note
            registry.check_acquire = self.check_acquire
            registry.store = self.store
            registry.label_from_caller = self.label_from_caller
            registry.deadlock_timeout = self.deadlock_timeout
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
        owner: object = None,
        min_hold: object = 0.0,
        max_hold: object = None,
        mode: Mode = "exclusive",
        permits: object = None,
        of_rwlock: bool = False,
        on_outage: object = "fail",
        outage_timeout: object = None,
        **unknown: object,
    ) -> Mutex:
        """A lock by its name. The store is not asked."""
        refuse("lock", unknown)
        limit = 0 if permits is None else checked_permits(permits)
        bound = checked_max_hold(max_hold)
        policy, patience = checked_outage(on_outage, outage_timeout)
        options = LockOptions(
            min(checked_lease(lease), bound),
            checked_switch(renew, "renew"),
            checked_timeout(timeout),
            checked_switch(reentrant, "reentrant"),
            checked_label(label),
            checked_owner(owner),
            mode=mode,
            limit=limit,
            of_rwlock=of_rwlock,
            min_hold=checked_seconds(min_hold, "min_hold", least=0.0, most=LONGEST_LEASE),
            max_hold=bound,
            on_outage=policy,
            outage_timeout=patience,
        )
        context = self.context(protocol)
        if mode not in context.registry.backend.capabilities.modes:
            raise self._unable(f"{self._protocol(protocol)} has {KINDS[mode]}", mode)
        if options.min_hold and not context.registry.backend.capabilities.min_hold:
            does = "min_hold= needs a store where a lock can stay taken after its release"
            raise self._unable(does, "min_hold")
        text = checked_name(name)
        context.registry.backend.check_name(text)
        return Mutex(context.registry, context.renewer, text, options)

    def once(
        self,
        name: object,
        every: object,
        align: object,
        times: object = 1,
        on_error: object = "keep",
        **options: Any,
    ) -> Operation[LeaseHandle | None]:
        """Acquire the lock without waiting, and keep it taken for a period; None if it is taken.
        With several *times*, it takes one permit of that number. With *on_error* "retry" it is kept
        taken only when the body has ended without an exception.
        """
        if on_error not in ("keep", "retry"):
            raise ValueError(f"on_error is 'keep' or 'retry', not {on_error!r:.80}")
        period = checked_seconds(every, "every", least=SHORTEST_PERIOD, most=LONGEST_LEASE)
        options |= {"min_hold": period, "renew": True, "timeout": 0.0, "owner": "lock"}
        if checked_permits(times, what="times") > 1:
            mutex = self.semaphore(name, times, **options)
        else:
            mutex = self.mutex(name, reentrant=False, **options)
        aligned = checked_switch(align, "align")
        if on_error == "keep":
            mutex.options = mutex.options._replace(aligned=aligned)
            return mutex.try_acquire()
        mutex.options = mutex.options._replace(min_hold=0.0)
        return self._turn(mutex, period, aligned)

    async def _turn(self, mutex: Mutex, period: float, aligned: bool) -> LeaseHandle | None:
        """A lease whose body uses up a turn if it succeeds; None if the lock is taken."""
        from leaselock._core.client.turns import Turn  # loaded where it is used

        handle = await mutex.try_acquire()
        if handle is not None:
            handle.turn = Turn(period, aligned=aligned)
        return handle

    def rwlock(self, name: object, **options: Any) -> dict[Mode, Mutex]:
        """The locks of a read/write lock: shared, update and exclusive."""
        locks: dict[Mode, Mutex] = {}
        options |= {"of_rwlock": True}
        for mode in ("shared", "exclusive", "update"):
            known = self.context(options["protocol"]).registry.backend.capabilities.modes
            if mode != "update" or mode in known:
                locks[mode] = self.mutex(name, mode=mode, **options)
        return locks

    def semaphore(
        self, name: object, permits: object, *, numbered: object = False, **options: Any
    ) -> Mutex:
        """A semaphore by its name; None takes the number of permits that the store has. Each permit
        that is held has a number if they are *numbered*.
        """
        options |= {"reentrant": False}
        mutex = self.mutex(name, permits=permits, mode="permits", **options)
        if checked_switch(numbered, "numbered"):
            if mutex.options.limit > MOST_SLOTS:
                raise ValueError(
                    f"numbered=True is for at most {MOST_SLOTS} permits, not {permits}"
                )
            mutex.options = mutex.options._replace(numbered=True)
        return mutex

    def lock_all(self, locks: Iterable[object], timeout: object, **options: Any) -> Together:
        """Several locks, given by their names or as locks of this client."""
        if isinstance(locks, str | bytes):
            raise TypeError(
                f"lock_all takes several names, and {locks!r:.80} is one: "
                f"write lock_all([{locks!r:.80}])"
            )
        mutexes = []
        for lock in [getattr(lock, "_mutex", lock) for lock in locks]:
            if isinstance(lock, Mutex):
                if lock.registry not in [c.registry for c in self.contexts.values()]:
                    raise ValueError(f"{lock.name!r} is a lock of another client")
                mutexes.append(lock)
            else:
                mutexes.append(self.mutex(lock, timeout=None, **options))
        if not mutexes:
            raise ValueError("no locks are named")
        return Together(self.env, merged(mutexes), checked_timeout(timeout))

    def _unable(self, text: str, what: str) -> ValueError:
        """The error for a mode or capability that the store has not, with the stores that have."""
        return ValueError(f"{text} (stores that can: {self.able(what)})" if self.able else text)

    def _protocol(self, protocol: str | None) -> str:
        protocol = protocol or self.protocol
        return "this store" if protocol is None else f"protocol {protocol!r} of this store"

    def election(
        self,
        name: object,
        *,
        lease: object,
        protocol: str | None,
        label: object,
        max_hold: object = None,
    ) -> Candidacy:
        """A part in the election of that name. The store is not asked."""
        from leaselock._core.client.election import Candidacy  # loaded where it is used

        mutex = self.mutex(
            name,
            lease=lease,
            renew=True,
            timeout=None,
            reentrant=False,
            protocol=protocol,
            label=label,
            max_hold=max_hold,
        )
        return Candidacy(mutex, self.context(protocol).terms)

    def is_open(self) -> bool:
        """Whether the store was asked anything, and the client was not closed since."""
        contexts = self.contexts.values()
        return not self.closed and any(c.registry.serial or c.registry.used_store for c in contexts)

    def unreleased(self) -> list[str]:
        """The names of the locks that stay held for a while if this process ends now."""
        names: set[str] = set()
        for context in self.contexts.values():
            registry = context.registry
            if not registry.backend.capabilities.detects_death:
                names |= registry.unreleased()
        return sorted(names)

    def listen(self, listener: Listener, *, rare: bool = False) -> None:
        """Report all events to *listener*, or only those that are *rare*."""
        if not callable(listener):
            raise TypeError(f"a listener is a function of an event, not {listener!r:.80}")
        (self.listeners.rare if rare else self.listeners.all).append(listener)

    def annotate(self, note: Callable[[], str]) -> None:
        """Store what *note* returns with each claim."""
        if not callable(note):
            raise TypeError(f"a note is made by a function, not {note!r:.80}")
        self.note = note
        for context in self.contexts.values():
            context.registry.note = note

    def check_acquires(self, check: Callable[[], None]) -> None:
        """Call *check* before each claim; what it raises ends the acquire. An integration refuses
        places of the program where a lock would protect nothing.
        """
        self.check_acquire = check
        for context in self.contexts.values():
            context.registry.check_acquire = check

    def state(self) -> str:
        """What `repr` says of the client besides its store."""
        held = sum(len(context.registry.held()) for context in self.contexts.values())
        words = [f" label {self.label!r}"] if self.label else [""]
        if self.closed:
            words.append("closed")
        elif held:
            words.append(f"{held} lock{'s' * (held > 1)} held")
        return ", ".join(words)

    async def locks(self, pattern: str, walk: bool) -> list[LockInfo]:
        """The locks that are held or waited for and match; with *walk*, those that are in no index
        as well.
        """
        registry = self.context(None).registry
        if walk:
            return lock_infos(await registry.walk(pattern))
        return lock_infos(await registry.inspect(None, pattern))

    @property
    def indexed(self) -> bool:
        """Whether `locks` reads an index."""
        return self.context(None).registry.backend.capabilities.indexed

    async def deadlocks(self) -> list[Deadlock]:
        """The cycles of owners that wait for one another, in locks of the default protocol."""
        from leaselock._core.client import deadlocks  # loaded where it is used

        return await deadlocks.find(self.context(None).registry)

    async def break_lock(
        self, name: object, token: object, message: str | None = None
    ) -> Holder | None:
        """End the holds of the lock, each by its token; with *token*, only the hold of that grant.
        The holder is told the *message*.

        A hold that has begun since is not touched, even if a request is repeated.
        """
        registry = self.context(None).registry
        wanted = None if token is None else checked_token(token)
        text = checked_name(name)
        (state,) = await registry.inspect(text, "*")
        if state.held is None:
            with concerning(text):
                state.readable()  # without a holder that can be read, nothing is ended
            return None
        meant = [each for each in state.holds if wanted is None or each.record.has_token(wanted)]
        if not meant:
            found = holder_of(state.held, None)
            its = f"token is not {wanted} but {state.held.token}, of {found}"
            if not state.held.token:
                its = f"holder is {found}, which has no token"
            raise NotHeld(text, f"{text!r} was not broken: its {its}")
        for each in meant:
            hold = each.record
            if message:
                from leaselock._core.client import break_notice  # loaded where it is used

                await break_notice.leave(registry, each, message)
            # By its own token: repeated after a lost reply, it must not end the next hold.
            retry = Retry(self.env, self.op_timeout, registry.answer_by())
            request = BreakLock(text, hold.token or hold.id)
            with concerning(text):
                await retry.until_answered(partial(registry.backend.request, request))
            now = self.env.now()
            by = holder_of(hold, None)
            event = Event(
                "broken", text, hold.id, now, token=hold.token, holder=by, reason=message or ""
            )
            await self.listeners.report(event, rare=True)
        return holder_of(meant[0].record, None)

    async def adopt(self, name: object, token: object) -> LeaseHandle:
        """Continue a detached lease, by the token that it was granted with. Leases of this client
        that continue the same one share a hold, as nested acquisitions do.
        """
        context = self.context(None)
        registry = context.registry
        text, wanted = checked_name(name), checked_token(token)
        sent_at = self.env.now()
        (state,) = await registry.inspect(text, "*")
        found = next((each for each in state.holds if each.record.has_token(wanted)), None)
        if found is None or found.record.lifetime != "lease":
            with concerning(text):
                state.readable()
            raise NotHeld(text, f"no detached lease on {text!r} has the token {wanted}")
        await context.renewer.start()
        held = found.record
        # By a protocol without expiry it does not end by itself.
        remaining = LONGEST_LEASE if found.remaining is None else found.remaining
        # Its release and its conversions depend on the mode, and the store counts the latter.
        mode: Mode = "update" if held.mode == "upgrading" else held.mode
        until = validity.valid_until(registry.backend.capabilities, sent_at, remaining)
        lease = LeaseHandle(registry, no_lock, mode)
        known = registry.table.get(held.id)
        if known is not None and known.is_valid(self.env.now()) and known.has_lease():
            lease.hold = known
            known.give(lease)
            return lease
        claim = registry.claim(text, remaining)
        claim = claim._replace(id=held.id, mode=mode, permits=held.permits)
        if registry.backend.capabilities.min_hold:
            # The store knows whether the lock stays taken after a release.
            claim = claim._replace(min_hold=remaining)
        hold = lease.hold = Hold(claim)
        hold.references = (lease.reference,)
        hold.owned, hold.conversions, hold.slots = False, held.step, held.slots
        registry.enter(hold, sent_at)
        registry.grant(hold, wanted, until, sent_at, FOREVER, False, FOREVER, None)
        return lease

    async def doctor(self) -> list[Finding]:
        """Examine the configuration of the store. A store that cannot be reached is a finding."""
        try:
            registry = self.context(None).registry
            findings = await registry.backend.request(Doctor(), registry.answer_by())
        except StoreError as error:
            return [*self.notes, Finding("fail", str(error))]
        return [*self.notes, *findings, *await self._unreadable(registry)]

    async def _unreadable(self, registry: ClaimRegistry) -> list[Finding]:
        """A finding for each lock with a record that cannot be read."""
        try:
            locks = lock_infos(await registry.inspect(None, "*"))
        except StoreError as error:
            return [Finding("skip", f"the locks could not be listed: {error}")]
        unreadable = [
            Finding("fail", f"the lock {lock.name!r} cannot be read: {lock.unreadable}", UNREADABLE)
            for lock in locks
            if lock.unreadable
        ]
        return unreadable + [
            Finding("warn", _kept(lock.name, holder), DESCENDANTS)
            for lock in locks
            for holder in lock.holders
            if holder.descendants
        ]

    async def setup(self, dry: bool) -> list[str]:
        """Create what the store needs; return what was done."""
        registry = self.context(None).registry
        return list(await registry.backend.request(Setup(dry), registry.answer_by()))

    async def gc(
        self,
        report: Callable[[int], object] | None = None,
        kept: Callable[[str], object] | None = None,
    ) -> int:
        """Remove records that are no longer needed; return how many. *report* is called with that
        number after each step, *kept* with what stays for a time.

        Each step has a deadline of its own. The error of one says what the earlier ones removed.
        """
        registry = self.context(None).registry
        removed, position = 0, None
        while True:
            request = CollectGarbage(position)
            try:
                step = await registry.backend.request(request, registry.answer_by())
            except StoreError as error:
                if not removed:
                    raise
                failed = error.concerning("")
                failed.args = (f"{error.args[0]} ({removed} records were removed before)",)
                raise failed from error.__cause__
            removed, position = removed + step.removed, step.position
            if report is not None:
                await CallUser(report, removed)
            if kept is not None:
                for text in step.kept:
                    await CallUser(kept, text)
            if position is None:
                return removed
            if step.pause:
                await Sleep(self.env.now() + step.pause)

    def look_again(self) -> None:
        """An operation was interrupted: let the renewer look for rows that are not in hand."""
        for context in self.contexts.values():
            context.registry.wake_renewer(0.0)

    def abandon(self, reason: str, ours: bool) -> None:
        """Lose all holds; release those that are *ours* and not a parent's."""
        for context in self.contexts.values():
            context.registry.abandon(reason, ours)

    async def close(self) -> None:
        """End all waits, release all holds, and stop the renewers."""
        until = self.env.now() + self.op_timeout
        self.closed = True
        for context in list(self.contexts.values()):
            if not context.closed:
                await context.registry.close(until)
                await context.renewer.unfinished.close(until)
                context.closed = True  # last: what was interrupted is done by the next call
