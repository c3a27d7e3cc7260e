"""The contract between the core and every store: requests, replies, and the class `Backend`.

A claim stands for one acquisition. Its id is new for each, so a request that arrives late can
never touch a later hold of the same thread (hazards A5, A9). Every request is idempotent: repeated
after a lost reply, it returns the first reply again.

The decisions are in `rules`; stores that decide by themselves must reply the same, which
verification/models checks.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from leaselock._core.contract.effects import FOREVER, Request, Signal, Wait
from leaselock._core.contract.marks import slots_of
from leaselock._named_tuple import NamedTuple
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

R = TypeVar("R")

# What ends a hold: its lease, the end of its client where the store can see that, or either of
# them. "lease" is a detached hold, "client" one that a child process may inherit, "cooling" one
# that was released and keeps the lock taken until `HoldRecord.free_from`.
Lifetime = Literal["either", "lease", "client", "cooling"]

# How a claim wants a lock. "upgrading" is an update hold that waits to become exclusive. "permits"
# is the mode of a semaphore's claims.
Mode = Literal["exclusive", "shared", "update", "upgrading", "permits"]

# Seconds for which a store remembers a watcher that does not look again, and the longest time
# after which one does.
WATCH_LASTS = 40.0
WATCH_INTERVAL = 15.0

# A listener reports this id when every waiter of its client should ask again.
WAKE_ALL = ""


class PoolExhausted(NotApplied):
    """All connections of the client were busy until the deadline: the request was not sent."""


class Unreadable(NotApplied):
    """A record of the lock cannot be read: it is damaged, or another program has written it. The
    message names the key, the row or the node, and says how to remove it.
    """

    reason: ErrorReason = "misconfigured"


class Claim(NamedTuple):
    """One acquisition, from before its first request until after its last."""

    name: str
    id: str
    client: str
    lease: float
    metadata: str
    since: float
    mode: Mode = "exclusive"
    permits: int = 1
    min_hold: float = 0.0
    """For how many seconds after its grant the lock stays taken, even if it is released before."""
    aligned: bool = False
    """Instead, until the store's clock reaches a multiple of `min_hold`."""
    limit: int = 0
    """How many permits its semaphore has, as its client says; 0 takes what the store has."""
    last_seen: float = 0.0
    """When it last asked, on the store's clock. The store sets it while the claim waits."""
    of_rwlock: bool = False
    """It is a claim of a read/write lock. Only Curator's format distinguishes that from a lock."""
    observes_queue: bool = False
    """It watches a lock for its holder, who wants to know of the first waiter, too."""

    @property
    def is_numbered(self) -> bool:
        """Whether its permits are to be numbered."""
        return self.mode == "permits" and slots_of(self.metadata) is not None

    def unused(self) -> Claim:
        """The same claim, whose release frees the lock at once: its grant was not used."""
        return self._replace(min_hold=0.0) if self.min_hold else self


class HoldRecord(NamedTuple):
    """A hold of a lock as the store has it; *expires* is on the store's clock. The hold of another
    program may have no token and an unknown start, which are 0.
    """

    id: str
    client: str
    lifetime: Lifetime
    token: int
    expires: float
    metadata: str
    since: float
    mode: Mode = "exclusive"
    permits: int = 1
    free_from: float = 0.0
    """The lock stays taken until then, on the store's clock, whatever becomes of its holder."""
    step: int = 0
    """How many conversions of it were applied."""
    offered: bool = False
    """It was granted to a waiter that has not confirmed it yet."""

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of its permits, if they are numbered."""
        return slots_of(self.metadata) or () if self.mode == "permits" else ()

    def has_token(self, token: int) -> bool:
        """Whether *token* is that of this grant."""
        return 0 < self.token == token

    def is_meant(self, token: int | str | None) -> bool:
        """Whether a request to break a lock means this hold: by a token, by its id, or any."""
        return self.has_token(token) if isinstance(token, int) else token in (None, self.id)


# --- compatibility --------------------------------------------------------------------------------

# The compatible modes of other claims, by the mode of a claim. Permits are counted instead.
COMPATIBLE_MODES: dict[Mode, frozenset[Mode]] = {
    "exclusive": frozenset(),
    "shared": frozenset({"shared", "update"}),
    "update": frozenset({"shared"}),
    "upgrading": frozenset(),
    "permits": frozenset({"permits"}),
}
# A mode includes all that are weaker.
STRENGTH: dict[Mode, int] = {"shared": 0, "update": 1, "upgrading": 1, "exclusive": 2, "permits": 0}


def compatible(others: Sequence[Claim | HoldRecord], claim: Claim, limit: int = 0) -> bool:
    """Whether *claim* can hold beside *others*: by their modes, and for a semaphore by the number
    of permits, of which there are *limit*.
    """
    beside = COMPATIBLE_MODES[claim.mode]
    if not all(other.mode in beside for other in others):
        return False
    return claim.mode != "permits" or sum(o.permits for o in others) + claim.permits <= limit


# --- replies --------------------------------------------------------------------------------------


# Why a store did not carry out a request: `StoreError.reason`.
ErrorReason = Literal["unreachable", "denied", "misconfigured", "refused"]


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
    sent_at: float = FOREVER
    """When, by the client's clock, its validity begins to count, if that is before the request."""
    lasts: float = FOREVER
    """For how many seconds the store has it, if that is less than the claim's lease."""
    slots: tuple[int, ...] = ()
    """The numbers of the permits, if the claim is to a numbered semaphore (`marks`)."""


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
    holds: int = 1
    """How many holds the lock has."""


class Mismatch(NamedTuple):
    """The claim cannot wait: its name is in use as another kind of lock, or with another limit, or
    the claim is for more permits than there are.
    """

    limit: int | None
    """The permits of the semaphore that has the name; 0 if none is known; None for a lock."""
    notified: tuple[str, ...] = ()
    """Waiting claims of the same client that should ask again."""


class Released(NamedTuple):
    """What the claim was before its release."""

    was: Literal["held", "waiting", "absent"]
    notified: tuple[str, ...]


class LifetimeSet(NamedTuple):
    """Whether the claim holds; for "client", the descriptors that a child must inherit."""

    held: bool
    descriptors: tuple[int, ...]


class Converted(NamedTuple):
    """The hold as it is now; None if the claim does not hold."""

    held: HoldRecord | None
    retry_after: float
    """While it is upgrading: after how many seconds to ask again."""
    notified: tuple[str, ...]


class Resized(NamedTuple):
    """The number of permits that the semaphore has now; None if the name is in use as a lock."""

    limit: int | None
    notified: tuple[str, ...]


class Broken(NamedTuple):
    """The hold that was found, and whether it was ended."""

    held: HoldRecord | None
    done: bool
    notified: tuple[str, ...]


class HoldState(NamedTuple):
    """A hold, and the seconds that are left of it: None when it does not end by time."""

    record: HoldRecord
    remaining: float | None
    descendants: tuple[int, ...] = ()
    """The processes that keep it although the process that acquired it has ended."""


class LockState(NamedTuple):
    """One lock as the store has it: its holds in the order of their tokens, and its waiters in the
    order in which they will be served.
    """

    name: str
    holds: tuple[HoldState, ...]
    waiting: tuple[Claim, ...]
    limit: int = 0
    """How many permits it has, if it is a semaphore."""
    unreadable: str = ""
    """Why one of its records cannot be read, with its key; the rest is what can be read. Empty if
    all can.
    """
    read_at: float = 0.0
    """When that was, by the store's clock, in Unix time; 0 if the store does not say."""

    @property
    def in_use(self) -> bool:
        """Whether a list of locks has it: it is held or waited for, as far as that can be read."""
        return bool(self.holds or self.waiting or self.unreadable)

    def readable(self) -> LockState:
        """The same state; Unreadable if one of its records cannot be read."""
        if self.unreadable:
            raise Unreadable(self.unreadable)
        return self

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


class Watched(NamedTuple):
    """The state of a lock, for a claim that watches it."""

    state: LockState
    retry_after: float
    """After how many seconds to look again, if no notification arrives before."""
    notified: bool = True
    """Whether changes will be notified; if not, the watcher looks at intervals of its own."""


# --- requests -------------------------------------------------------------------------------------


class Acquire(
    NamedTuple("Acquire", [("claim", Claim), ("wait", bool)]), Request[Grant | Busy | Mismatch]
):
    """Grant the claim. If the lock is taken, put the claim in the queue if it may *wait*."""

    __slots__ = ()
    method = "acquire"


class Renew(NamedTuple("Renew", [("claims", Sequence[Claim])]), Request[Sequence[bool | None]]):
    """Make the lease of each claim end no sooner than its length from now; reply whether each
    claim holds, None where that is not known.
    """

    __slots__ = ()
    method = "renew"


class Release(NamedTuple("Release", [("claim", Claim), ("tombstone", bool)]), Request[Released]):
    """Release the claim if it holds, cancel it if it waits. A claim with `min_hold` leaves the lock
    taken until the `free_from` of its hold.

    With *tombstone*, refuse the claim from now on: a request of it that is still in flight then
    does nothing when it arrives (hazard D2).
    """

    __slots__ = ()
    method = "release"


class SetLifetime(
    NamedTuple("SetLifetime", [("claim", Claim), ("lifetime", Lifetime)]), Request[LifetimeSet]
):
    """Change what ends the claim's hold."""

    __slots__ = ()
    method = "set_lifetime"


class Convert(
    NamedTuple("Convert", [("claim", Claim), ("step", int), ("mode", Mode)]), Request[Converted]
):
    """Change the mode of the claim's hold: to a weaker one at once, from update to exclusive when
    it is the only hold. *step* counts the conversions of the hold: a smaller one than the last is
    ignored.
    """

    __slots__ = ()
    method = "convert"
    wakes = True

    def expects(self) -> Claim | None:
        """The claim, if its hold may have to wait until it is exclusive."""
        return self.claim if self.mode == "exclusive" else None


class Resize(NamedTuple("Resize", [("name", str), ("limit", int)]), Request[Resized]):
    """Change the number of permits of a semaphore. No hold ends; claims for more are refused."""

    __slots__ = ()
    method = "resize"
    wakes = True


class Inspect(
    NamedTuple("Inspect", [("name", str | None), ("pattern", str)]), Request[Sequence[LockState]]
):
    """The state of the lock *name*, or of all locks whose names match *pattern*."""

    __slots__ = ()
    method = "inspect"


def is_plain(pattern: str) -> bool:
    """Whether a pattern matches only the name that it is itself."""
    return pattern.isprintable() and not any(character in pattern for character in "*?[")


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that a list of locks with this pattern has, in its order."""
    from fnmatch import fnmatchcase

    return sorted({name for name in names if fnmatchcase(name, pattern)})


class Walk(NamedTuple("Walk", [("pattern", str)]), Request[Sequence[LockState]]):
    """The state of all locks whose names match, those of other programs as well, which an index
    does not contain. Sent only to a store that is `indexed`.
    """

    __slots__ = ()
    method = "walk"


class Watch(NamedTuple("Watch", [("claim", Claim)]), Request[Watched]):
    """The state of the claim's lock. For WATCH_LASTS seconds, notify the claim when a hold of the
    lock begins or ends.
    """

    __slots__ = ()
    method = "watch_lock"

    def expects(self) -> Claim:
        """The claim that watches."""
        return self.claim


class BreakLock(
    NamedTuple("BreakLock", [("name", str), ("token", int | str | None)]), Request[Broken]
):
    """End the hold of the lock; with *token*, only the hold of that grant. For a hold without a
    token it is the id of the hold.
    """

    __slots__ = ()
    method = "break_lock"
    wakes = True


class Listen(
    NamedTuple("Listen", [("client", str), ("interrupt", Signal)]), Request[tuple[str, ...]]
):
    """Sent to a listener: wait for messages; reply the ids of the claims to wake, or WAKE_ALL.
    The reply is empty at the deadline, and when *interrupt* is set.
    """

    __slots__ = ()


class Doctor(NamedTuple("Doctor", []), Request[tuple[Finding, ...]]):
    """Examine the configuration of the store."""

    __slots__ = ()
    method = "doctor"


class Setup(NamedTuple("Setup", [("dry", bool)]), Request[tuple[str, ...]]):
    """Create what the store needs before its first use, with *dry* only list it; reply the
    statements.
    """

    __slots__ = ()
    method = "setup"


class Collected(NamedTuple):
    """What one step of a garbage collection has done."""

    removed: int
    """How many records it has removed."""
    position: object = None
    """Where the next step begins, as only the store understands it; None after the last step."""
    pause: float = 0.0
    """For how many seconds the next step leaves the store to others."""
    kept: tuple[str, ...] = ()
    """What was found that stays for a time, and until when: for people."""


class CollectGarbage(NamedTuple("CollectGarbage", [("position", object)]), Request[Collected]):
    """One step of a garbage collection, from a *position* on, which is None at first: remove
    records that are no longer needed. A step ends by itself, long before its deadline, and every
    other request may come between two steps.
    """

    __slots__ = ()
    method = "collect_garbage"


# --- the backend ----------------------------------------------------------------------------------


class Capabilities(NamedTuple):
    """What a store can do, and how its clock may differ."""

    clock_drift: float
    """How much faster than the client's its clock may run, as a fraction."""
    clock_margin: float
    """What the granularity of both clocks may add, in seconds."""
    detects_death: bool
    """It notices at once when a client dies."""
    inheritable: bool
    """A child process can inherit a hold."""
    session_timeout: float = FOREVER
    """Every hold of a client ends when the store has not heard of the client for this many seconds;
    then the backend itself ends a hold whose lease is over while its client lives. Infinite where a
    hold ends by its own lease.
    """
    min_hold: bool = False
    """It can keep a lock taken for a while after its release."""
    modes: frozenset[Mode] = frozenset({"exclusive"})
    """The modes of the claims that it can grant: with others than "exclusive" it answers `Convert`,
    with "permits" also `Resize`.
    """
    notifies_changes: bool = False
    """It answers `Watch`. Otherwise a watcher inspects the lock at intervals."""
    fragile_holds: bool = False
    """A hold has a connection of its own, and is lost if a request about it is interrupted. So the
    requests of its owner run in the background.
    """
    indexed: bool = False
    """It lists locks from an index, which those of other programs may be missing from, and answers
    `Walk`. Otherwise `Inspect` lists all locks.
    """

    @property
    def holds_expire(self) -> bool:
        """A hold ends by its own lease; otherwise with the session of its client."""
        return self.session_timeout == FOREVER


# What a store that keeps the `rules` can do.
ALL_MODES: frozenset[Mode] = frozenset({"exclusive", "shared", "update", "permits"})


class Backend(abc.ABC):
    """A way of locking, on one store, for one client. Its methods are operations, or plain steps
    where they are not awaited: those may not block. Every `until` is the time by which a request
    must be answered: NotApplied or OutcomeUnknown otherwise.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        # By the ids of the claims that wait: what `wake` sets.
        self.signals: dict[str, Signal] = {}
        self.lose: Callable[[str, str], None] = _ignore_loss
        """Call it, in a step of the core, with the id of a claim and the reason, when its hold has
        ended and the store knows that by itself: with the session of the client, for example.
        """

    # --- requests

    @abc.abstractmethod
    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try. LimitMismatch if the claim cannot wait.

        A coroutine; or a plain function that returns the one `Call` that nearly always does, whose
        `then` makes a Grant or Busy of the reply. The same holds for `release`.
        """

    @abc.abstractmethod
    def release(self, claim: Claim, *, tombstone: bool, until: float) -> Awaitable[bool]:
        """Release the claim, or cancel it while it waits; return whether it held."""

    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Carry out one of the other requests: `Renew`, `SetLifetime`, `Inspect`, `Walk`,
        `BreakLock`, `Watch`, `Convert`, `Resize`, `Doctor`, `Setup`, `CollectGarbage`. As it is
        here, it calls the method that the request names, with the fields of the request and
        *until*.

        A request of a kind that the capabilities exclude is never sent.
        """
        fields: Any = request
        answer: Awaitable[R] = getattr(self, request.method)(*fields, until)
        return answer

    # --- waiting: a store with messages calls `wake` with what they say

    def expect_wakeup(self, claim: Claim) -> None:
        """Arm the claim's signal. Called before its request is sent, so no message is missed."""
        signal = self.signals.get(claim.id)
        if signal is None:
            self.signals[claim.id] = Signal()
        else:
            signal.is_set = False

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Return when asking again may help, at the latest at *until*. A notification that has
        arrived since the last acquire request is not missed. After a `Watch`: return when a hold of
        the lock may have begun or ended, until `forget`.
        """
        return Wait(self.signals[claim.id], until)

    def forget(self, claim: Claim) -> None:
        """Stop waiting: the claim was granted, or its release is already scheduled."""
        signal = self.signals.pop(claim.id, None)
        if signal is None:
            return
        if signal.wakers:
            signal.set()
        else:
            signal.is_set = True

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let `await_wakeup` return for these claims, and for no other: each of them is given up,
        or should ask again.
        """
        for claim_id in claim_ids:
            if (signal := self.signals.get(claim_id)) is not None:
                signal.set()

    def wake_all(self) -> None:
        """Wake all claims. A store calls it when it may have missed messages."""
        self.wake(list(self.signals))

    def wait_and_listen(self, changed: Signal, until: float) -> Awaitable[object]:
        """Wait for *changed*, at most until *until*. The renewer calls it while it has nothing to
        do; a store without a background operation for its messages receives them meanwhile.
        """
        return Wait(changed, until)

    def check_name(self, name: str) -> None:  # noqa: B027 - most stores take every name
        """Warn about a name that is probably a mistake, three calls above the user's."""

    # --- its life

    def close(self) -> None:
        """End all waits: the client is closing. No wait begins after this, but the requests that
        release its locks follow.
        """
        self.wake_all()

    def after_fork(self) -> None:
        """Drop the waiters and background operations of this client: after a fork, or when its
        event loop was closed.
        """
        self.signals = {}


def _ignore_loss(claim_id: str, reason: str) -> None:
    """No client uses the backend yet."""
