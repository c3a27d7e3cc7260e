"""The contract between the core and every store: requests, replies, and the `Backend` protocol.

A claim stands for one acquisition. Its id is new for each, so a request that arrives late can
never touch a later hold of the same thread (hazards A5, A9). Every request is idempotent: repeated
after a lost reply, it returns the first reply again.

The decisions are in `rules`; stores that decide by themselves must reply the same, which
tests/models checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from leaselock.core.effects import FOREVER, Request
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

# What ends a hold: its lease, the end of its client where the store can see that, or either of
# them. "lease" is a detached hold, "client" one that a child process may inherit.
Lifetime = Literal["either", "lease", "client"]

# How a claim wants a lock. "upgrading" is an update hold that waits to become exclusive.
Mode = Literal["exclusive", "shared", "update", "upgrading"]

# A listener reports this id when every waiter of its client should ask again.
WAKE_ALL = ""


class PoolExhausted(NotApplied):
    """All connections of the client were busy until the deadline: the request was not sent."""


class Claim(NamedTuple):
    """One acquisition, from before its first request until after its last."""

    name: str
    id: str
    client: str
    lease: float
    metadata: str
    since: float
    tokens: int = 1
    """How many consecutive tokens its grant reserves."""
    cached: bool = False
    """Its client may keep the lease while no local claim uses it, and must be notified when
    another client waits.
    """
    mode: Mode = "exclusive"
    permits: int = 1


class HoldRecord(NamedTuple):
    """A hold of a lock as the store has it; *expires* is on the store's clock."""

    id: str
    client: str
    lifetime: Lifetime
    token: int
    expires: float
    metadata: str
    since: float
    tokens: int = 1
    cached: bool = False
    mode: Mode = "exclusive"
    permits: int = 1

    def has_token(self, token: int) -> bool:
        """Whether *token* is one of those that this grant has reserved."""
        return self.token <= token < self.token + self.tokens


# --- compatibility --------------------------------------------------------------------------------

# The modes that a claim can be granted beside, by its own mode.
BESIDE: dict[Mode, frozenset[Mode]] = {
    "exclusive": frozenset(),
    "shared": frozenset({"shared", "update"}),
    "update": frozenset({"shared"}),
    "upgrading": frozenset(),
}


def compatible(
    others: Iterable[Claim | HoldRecord], claim: Claim, limit: int | None = None
) -> bool:
    """Whether *claim* can hold beside *others*: by their modes for a lock, by the number of permits
    for a semaphore of *limit* permits.
    """
    if limit is not None:
        return sum(other.permits for other in others) + claim.permits <= limit
    beside = BESIDE[claim.mode]
    return all(other.mode in beside for other in others)


# --- replies --------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """One result of `Client.doctor`.

    >>> for finding in client.doctor():
    ...     print(finding.level, finding.what, finding.advice)
    ok the memory of this process
    """

    level: Literal["ok", "warn", "fail", "skip"]
    """`skip` where it could not be examined."""
    what: str
    """What was found."""
    advice: str = ""
    """What to do about it; empty where nothing needs to be done."""
    server: str = ""
    """The server it is about, by a name that only this one has; empty where it has none."""


class Grant(NamedTuple):
    """The claim holds the lock."""

    token: int
    notified: tuple[str, ...]
    """Waiting claims of the same client that should ask again."""
    asked: float = FOREVER
    """When, by the client's clock, its validity begins to count, if that is before the request."""
    lasts: float = FOREVER
    """For how many seconds the store has it, if that is less than the claim's lease."""


class Busy(NamedTuple):
    """The claim does not hold the lock."""

    held: HoldRecord | None
    """The hold that is in the way, if the store knows it."""
    retry_after: float
    """After how many seconds to ask again, if no notification arrives before."""
    notified: tuple[str, ...]
    """Waiting claims of the same client that should ask again."""
    waiting: int | None = None
    """How many claims wait for the lock, this one included; None if the store does not say."""


class Released(NamedTuple):
    """What the claim was before its release."""

    was: Literal["held", "waiting", "absent"]
    notified: tuple[str, ...]


class LifetimeSet(NamedTuple):
    """Whether the claim holds; for "client", the descriptors that a child must inherit."""

    held: bool
    descriptors: tuple[int, ...]


class Broken(NamedTuple):
    """The hold that was found, and whether it was ended."""

    held: HoldRecord | None
    done: bool
    notified: tuple[str, ...]


class HoldState(NamedTuple):
    """A hold, and the seconds that are left of it: None when it does not end by time."""

    record: HoldRecord
    remaining: float | None


class LockState(NamedTuple):
    """One lock as the store has it: its holds in the order of their tokens, and its waiters in the
    order in which they will be served.
    """

    name: str
    holds: tuple[HoldState, ...]
    waiting: tuple[Claim, ...]

    @classmethod
    def exclusive(
        cls,
        name: str,
        held: HoldRecord | None,
        remaining: float | None,
        waiting: tuple[Claim, ...],
    ) -> LockState:
        """The state of a lock that has one hold at most."""
        return cls(name, () if held is None else (HoldState(held, remaining),), waiting)

    @property
    def held(self) -> HoldRecord | None:
        """The first hold."""
        return self.holds[0].record if self.holds else None

    @property
    def remaining(self) -> float | None:
        """Seconds that are left of the first hold."""
        return self.holds[0].remaining if self.holds else None

    def replace_hold(self, record: HoldRecord) -> LockState:
        """The same with another record of the first hold."""
        first, *others = self.holds
        return self._replace(holds=(first._replace(record=record), *others))


# --- requests -------------------------------------------------------------------------------------


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


# --- the backend ----------------------------------------------------------------------------------


class Capabilities(NamedTuple):
    """What a store can do, and how its clock may differ."""

    clock_drift: float
    """How much faster than the client's its clock may run, as a fraction."""
    clock_margin: float
    """What the granularity of both clocks may add, in seconds."""
    life: bool
    """It notices at once when a client dies."""
    inheritable: bool
    """A child process can inherit a hold."""
    session_timeout: float = FOREVER
    """Every hold of a client ends when the store has not heard of the client for so many seconds;
    then the backend itself ends a hold whose lease is over while its client lives. Infinite where a
    hold ends by its own lease.
    """
    token_ranges: bool = False
    """It can reserve several tokens with one grant."""
    notifies_contention: bool = False
    """It notifies the holder of a cached claim when another client waits."""


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
    """A backend that is notified when a hold ends, beside what every backend does."""

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        """Call `lose(claim_id, reason)`, in a step of the core, when a hold has ended."""
        ...


class Backend(Protocol):
    """A way of locking, on one store, for one client. Its methods are processes, or plain steps
    where they are not awaited. Every `until` is the time by which a request must be answered:
    NotApplied or OutcomeUnknown otherwise.
    """

    capabilities: Capabilities

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""
        ...

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Return when asking again may help, at the latest at *until*. A notification that has
        arrived since the last acquire request is not missed.
        """
        ...

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew many at once; for each: does it still hold? None where that is not known."""
        ...

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release the claim, or cancel it while it waits; return whether it held."""
        ...

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        ...

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """One lock (*name*), or all that are held or waited for and match *pattern*."""
        ...

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """End the hold of the lock; with *token*, only the hold of that grant."""
        ...

    def doctor(self, until: float) -> Awaitable[Sequence[Finding]]:
        """Examine the configuration of the store."""
        ...

    def setup(self, dry: bool, until: float) -> Awaitable[Sequence[str]]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        ...

    def collect_garbage(self, until: float) -> Awaitable[int]:
        """Remove records that are no longer needed; return how many."""
        ...

    def forget(self, claim: Claim) -> None:
        """Stop waiting: the claim was granted, or its release is already scheduled."""
        ...

    def wake_all(self) -> None:
        """Wake every waiting process: the client is closing."""
        ...

    def reset_identity(self) -> None:
        """Drop the waiters and background processes of this client: after a fork, or when its
        event loop was closed.
        """
        ...
