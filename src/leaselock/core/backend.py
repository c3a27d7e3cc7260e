"""What a store is asked and what it answers: the contract between the core and every backend.

A claim names one acquisition: its `holder` is fresh for each, so a request that arrives late
can never touch a later hold of the same thread (hazards A5, A9). Every request is idempotent:
asked again after a lost reply, it gives the first answer again.

Nothing here decides anything; `rules` does, and the stores that decide by themselves must
answer the same (tests/models).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from leaselock.core.effects import FOREVER
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

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


class Acquire(NamedTuple):
    """Grant the claim; or, if the lock is taken, let it *wait* in the queue. → Grant | Busy"""

    claim: Claim
    wait: bool


class Renew(NamedTuple):
    """Make each claim's lease end no sooner than its length from now. → tuple[bool, ...]"""

    claims: Sequence[Claim]


class Release(NamedTuple):
    """Give the claim up, whether it holds or waits. With *bury*, refuse it from now on, so that
    a question of it that is still under way does nothing when it arrives (hazard D2). → Left
    """

    claim: Claim
    tombstone: bool


class AwaitWakeup(NamedTuple):
    """Wait until a message for the claim has come since it asked last. → None"""

    claim: Claim


class ReleaseGrant(NamedTuple):
    """Give the claim's hold up if it is the grant with that token, and no other. → Left"""

    claim: Claim
    token: int


class RaiseToken(NamedTuple):
    """Make the token of the claim's hold, and so every later one, no less than this. → bool,
    whether the claim holds
    """

    claim: Claim
    token: int


class SetLifetime(NamedTuple):
    """Change what ends the claim's hold. → LifetimeSet"""

    claim: Claim
    lifetime: Lifetime


class Inspect(NamedTuple):
    """Who holds and who waits: of one lock, or of all whose names match. → tuple[Sight, ...]"""

    name: str | None
    pattern: str


class BreakLock(NamedTuple):
    """Take the lock from whoever holds it; with *token*, only from that grant. → Broken"""

    name: str
    token: int | None


class Listen(NamedTuple):
    """Asked of the ear: who should look again? → tuple[str, ...] of holders, or EVERYONE"""

    client: str


class Doctor(NamedTuple):
    """How is the store set up, and does that suit a lock? → tuple[Finding, ...]"""


class Setup(NamedTuple):
    """Make what the store needs before it can be used; with *dry*, only say what that would be.
    → tuple[str, ...], what was (or would be) done, one statement each
    """

    dry: bool


class CollectGarbage(NamedTuple):
    """Remove what nobody needs any more. → int, how many records that were"""


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
