"""What a store is asked and what it answers: the contract between the core and every backend.

A claim names one acquisition: its `holder` is fresh for each, so a request that arrives late
can never touch a later hold of the same thread (hazards A5, A9). Every request is idempotent:
asked again after a lost reply, it gives the first answer again.

Nothing here decides anything; `rules` does, and the stores that decide by themselves must
answer the same (tests/models).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from leaselock.core.effects import FOREVER, Request
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# A hold ends with its lease, with the life of its client where the store can see it, or with
# whichever comes first. "lease" is a detached hold, "client" one that a child process inherits.
Lifetime = Literal["either", "lease", "client"]

# What an ear says when every waiter of its client should look again: one they watched has died.
WAKE_ALL = ""


class PoolExhausted(NotApplied):
    """A client has more to ask at once than its connections can carry: this was not sent."""


class Claim(NamedTuple):
    """One acquisition, from before the first question until after the last."""

    name: str
    id: str
    client: str
    lease: float
    metadata: str
    since: float
    tokens: int = 1
    """How many tokens its grant reserves, from that of the grant on."""
    cached: bool = False
    """Its client may keep the lease while nobody uses it, and is to be told who else asks."""


class HoldRecord(NamedTuple):
    """The hold of a lock as the store has it; *expires* is on the store's clock."""

    id: str
    client: str
    lifetime: Lifetime
    token: int
    expires: float
    metadata: str
    since: float
    tokens: int = 1
    cached: bool = False

    def named(self, token: int) -> bool:
        """Whether *token* is one of this grant's."""
        return self.token <= token < self.token + self.tokens


class Finding(NamedTuple):
    """One thing that was examined.

    *level* is "skip" where it could not be. *advice* is what to do about it, empty where nothing
    needs to be done; *server* is which server it is about, by a name that only this one has, empty
    where it has none.
    """

    level: Literal["ok", "warn", "fail", "skip"]
    what: str
    advice: str = ""
    server: str = ""


class Grant(NamedTuple):
    """The claim holds the lock. *woken* are waiters of the same client to wake."""

    token: int
    notified: tuple[str, ...]
    asked: float = FOREVER
    """When, by our clock, its validity begins to count, if that is before the question."""
    lasts: float = FOREVER
    """For how many seconds the store has it, if that is less than the claim's lease."""


class Busy(NamedTuple):
    """Somebody else holds. Ask again after *recheck* seconds if nobody has woken you by then."""

    held: HoldRecord | None
    retry_after: float
    notified: tuple[str, ...]


class Released(NamedTuple):
    """What the claim was when it left."""

    was: Literal["held", "waiting", "absent"]
    notified: tuple[str, ...]


class LifetimeSet(NamedTuple):
    """Whether the claim holds; for "client", the descriptors that a child must inherit."""

    held: bool
    descriptors: tuple[int, ...]


class Broken(NamedTuple):
    """Whose hold was found, and whether it was taken away."""

    held: HoldRecord | None
    done: bool
    notified: tuple[str, ...]


class LockState(NamedTuple):
    """One lock as the store has it; *remaining* of the hold, in seconds, None when unbounded."""

    name: str
    held: HoldRecord | None
    remaining: float | None
    waiting: tuple[Claim, ...]


class Acquire(NamedTuple("Acquire", [("claim", Claim), ("wait", bool)]), Request[Grant | Busy]):
    """Grant the claim. If the lock is taken, put the claim in the queue if it may *wait*."""

    __slots__ = ()


class Renew(NamedTuple("Renew", [("claims", Sequence[Claim])]), Request[Sequence[bool]]):
    """Make the lease of each claim end no sooner than its length from now; reply whether each
    claim holds.
    """

    __slots__ = ()


class Release(NamedTuple("Release", [("claim", Claim), ("tombstone", bool)]), Request[Released]):
    """Release the claim if it holds, cancel it if it waits.

    With *tombstone*, refuse the claim from now on: a request of it that is still in flight then
    does nothing when it arrives (hazard D2).
    """

    __slots__ = ()


class AwaitWakeup(NamedTuple("AwaitWakeup", [("claim", Claim)]), Request[None]):
    """Wait until a message for the claim has arrived since its last acquire request."""

    __slots__ = ()


class ReleaseGrant(
    NamedTuple("ReleaseGrant", [("claim", Claim), ("token", int)]), Request[Released]
):
    """Release the claim's hold if it is the grant with this token, and no other."""

    __slots__ = ()


class RaiseToken(NamedTuple("RaiseToken", [("claim", Claim), ("token", int)]), Request[bool]):
    """Make the token of the claim's hold, and so of every later one, at least *token*; reply
    whether the claim holds.
    """

    __slots__ = ()


class SetLifetime(
    NamedTuple("SetLifetime", [("claim", Claim), ("lifetime", Lifetime)]), Request[LifetimeSet]
):
    """Change what ends the claim's hold."""

    __slots__ = ()


class Inspect(
    NamedTuple("Inspect", [("name", str | None), ("pattern", str)]), Request[Sequence[LockState]]
):
    """The state of the lock *name*, or of all locks whose names match *pattern*."""

    __slots__ = ()


class BreakLock(NamedTuple("BreakLock", [("name", str), ("token", int | None)]), Request[Broken]):
    """End the hold of the lock; with *token*, only the hold of that grant."""

    __slots__ = ()


class Listen(NamedTuple("Listen", [("client", str)]), Request[tuple[str, ...]]):
    """Sent to a listener: wait for messages; reply the ids of the claims to wake, or WAKE_ALL."""

    __slots__ = ()


class Doctor(NamedTuple("Doctor", []), Request[tuple[Finding, ...]]):
    """Examine the configuration of the store."""

    __slots__ = ()


class Setup(NamedTuple("Setup", [("dry", bool)]), Request[tuple[str, ...]]):
    """Create what the store needs before its first use, with *dry* only list it; reply the
    statements.
    """

    __slots__ = ()


class CollectGarbage(NamedTuple("CollectGarbage", []), Request[int]):
    """Remove records that are no longer needed; reply their number."""

    __slots__ = ()


class Capabilities(NamedTuple):
    """What a store can say and do."""

    clock_drift: float
    """How much faster than ours its clock may run, as a fraction."""
    clock_margin: float
    """What the granularity of both clocks may add, in seconds."""
    life: bool
    """It notices at once when a client dies."""
    inheritable: bool
    """A child process can inherit a hold."""
    session_timeout: float = FOREVER
    """Every hold of a client ends when the store has heard nothing of it for so many seconds.
    Infinite where a hold ends by its own lease. Where it is not, the backend itself ends a hold
    whose lease is over, for as long as its client lives.
    """
    token_ranges: bool = False
    """It can give a grant several tokens at once."""
    notifies_contention: bool = False
    """It tells the holder of a sticky claim that somebody else asks."""


class StoreLifecycle(Protocol):
    """What a driver does to a store at the end of a client. No method waits; the driver calls
    each as one step, under its monitor.
    """

    def interrupt(self) -> None:
        """End every wait and every call that has no deadline. The driver then waits for the
        background processes to end.
        """
        ...

    def close(self) -> None:
        """Close all connections. The next call opens new ones."""
        ...

    def abandon(self) -> None:
        """Drop all connections without using them: in a forked child, whose parent still uses
        them, or after the event loop they belong to was closed.
        """
        ...


@runtime_checkable
class Watchful(Protocol):
    """A backend that sees at once when a hold ends, beside what every backend does."""

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        """Whom to tell, in a step of the core: the holder, and why its hold has ended."""
        ...


class Backend(Protocol):
    """One way of locking, on one store, for one client. Its methods are processes."""

    capabilities: Capabilities

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""
        ...

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Return when asking again may help, at the latest at *until*. Nothing is missed
        that has happened since the last `ask`.
        """
        ...

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew many at once; for each: does it still hold? None where that is not known."""
        ...

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Give up; says whether it held."""
        ...

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        ...

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """One lock (*name*), or all held or waited for that match *pattern*."""
        ...

    def doctor(self, until: float) -> Awaitable[Sequence[Finding]]:
        """Report how the store is set up, and whether that suits a lock."""
        ...

    def setup(self, dry: bool, until: float) -> Awaitable[Sequence[str]]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        ...

    def collect_garbage(self, until: float) -> Awaitable[int]:
        """Remove records that are no longer needed; return how many."""
        ...

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away from its holder."""
        ...

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        ...

    def wake_all(self) -> None:
        """Wake every waiting process: the client is closing."""
        ...

    def reset_identity(self) -> None:
        """Drop what belonged to the process that forked us."""
        ...
