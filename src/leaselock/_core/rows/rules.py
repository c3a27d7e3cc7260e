"""Who holds a lock, and who is next: the decisions of a store, written once.

Each function carries out one request on a `LockRow`, which is where a store keeps one lock. It runs
alone on that row (in a transaction, under a mutex), so it is one atomic step of the store. Stores
that have rows run these functions in production; so do the simulator's models.

A lock has any number of holds, and a queue of claims in the order of their arrival. A claim is
granted if and only if it is compatible with all holds and with every claim ahead of it: no claim is
overtaken by a later one that conflicts with it. Every request first removes the holds that have
ended and grants what can be granted then (`expire_and_grant`); and it notifies once, from the state
before against the state after (`notify_changes`).

A waiter is granted a lock for CONFIRM_WITHIN seconds. It is notified and asks again, which confirms
the grant for the whole lease. So a dead waiter delays no other. Frozen waiters delay everyone by
CONFIRM_WITHIN in total: a living waiter asks at least that often, and after a grant that was not
confirmed, claims that have not asked since it are passed over until their client asks again. They
keep their place.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from leaselock._core.contract.backend import (
    STRENGTH,
    WATCH_INTERVAL,
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Convert,
    Converted,
    Grant,
    HoldRecord,
    HoldState,
    Inspect,
    LifetimeSet,
    LockState,
    Mismatch,
    Mode,
    Release,
    Released,
    Renew,
    Resize,
    Resized,
    SetLifetime,
    Unreadable,
    Watch,
    Watched,
    compatible,
    is_plain,
    matching,
)
from leaselock._core.contract.marks import lowest_free, slots_of, with_marks
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# Seconds.
CONFIRM_WITHIN = 2.0
# The longest time between two requests of a waiter: less than CONFIRM_WITHIN, see above.
RECHECK_INTERVAL = 0.9 * CONFIRM_WITHIN
# A waiting claim is dropped this many seconds after its last request.
FORGET_AFTER = 15.0
NEVER = 1e9
# Precedes the id of a claim that was released while its lock stays taken: no late request of the
# claim can touch what is left of its hold.
COOLING = "released:"
# Holds of these modes conflict with every other claim, and queued claims of these with all behind.
EXCLUSIVE_MODES: frozenset[Mode] = frozenset({"exclusive", "upgrading"})
BLOCKING: frozenset[Mode] = frozenset({"exclusive", "permits"})


class LockRow(abc.ABC):
    """One lock in a store, for the length of one transaction: its data, which every store keeps,
    and services, which a store without the means leaves as they are here.
    """

    # --- data: to be written for every store

    now: float
    """The store's clock, in seconds. Only the methods under "time" read it."""
    limit: int
    """How many permits the name has as a semaphore; 0 if it never was one."""
    lapsed_offer: float
    """When the last offer that lapsed was made, a grant that was not confirmed in time: claims that
    have not asked since are passed over. 0 if there are none.
    """
    wall: float
    """Unix time by the store's clock: shown as the beginning of a grant, and what periods are
    aligned to.
    """

    @abc.abstractmethod
    def holds(self) -> Sequence[HoldRecord]:
        """The holds on record, in the order of their tokens; some may have ended."""

    @abc.abstractmethod
    def draw(self) -> int:
        """A new token, which is greater than all before."""

    @abc.abstractmethod
    def put(self, hold: HoldRecord) -> None:
        """Record a hold, or changes of one."""

    @abc.abstractmethod
    def remove(self, hold_id: str) -> None:
        """Delete a hold."""

    @abc.abstractmethod
    def queue(self) -> Iterable[Claim]:
        """The queued claims, the head first. They may be taken out meanwhile."""

    @abc.abstractmethod
    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its position. It has asked now."""

    @abc.abstractmethod
    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""

    @abc.abstractmethod
    def touch(self, client: str) -> None:
        """All queued claims of *client* have asked now. Reset `lapsed_offer` if no claim asked
        before it.
        """

    # --- what follows from the data; a store that has an index answers it faster

    def idle(self) -> bool:
        """Whether there is neither a hold nor a queued claim."""
        return not (self.holds() or self.has_queue())

    def has_queue(self) -> bool:
        """Whether any claim is queued."""
        return next(iter(self.queue()), None) is not None

    def queued(self, claim_id: str) -> bool:
        """Whether the claim is queued."""
        return any(claim.id == claim_id for claim in self.queue())

    def ahead(self, claim_id: str) -> Iterable[Claim]:
        """The queued claims ahead of *claim_id*, the nearest first; all, if it is not queued. They
        may be taken out meanwhile.
        """
        claims = list(self.queue())
        position = next((i for i, claim in enumerate(claims) if claim.id == claim_id), len(claims))
        return claims[:position][::-1]

    def behind(self, claim_id: str) -> Claim | None:
        """The claim directly behind."""
        claims = iter(self.queue())
        return next(claims, None) if any(claim.id == claim_id for claim in claims) else None

    def length(self) -> int | None:
        """How many claims are queued, to be shown; None where that costs a request."""
        return None

    # --- time: a store without a clock answers by other means

    @property
    def moment(self) -> float:
        """Now, as `last_seen` of claims and `lapsed_offer` count it: any number that never
        decreases.
        """
        return self.now

    def has_ended(self, hold: HoldRecord) -> bool:
        """Whether the lease of a hold is over."""
        return hold.expires <= self.now

    def end_of(self, seconds: float) -> float:
        """What to record as the end of *seconds* that begin now."""
        return self.now + seconds

    def remaining(self, hold: HoldRecord) -> float:
        """For how many seconds the lease of a hold goes on."""
        return hold.expires - self.now

    def extend(self, hold: HoldRecord, seconds: float) -> HoldRecord:
        """The hold, whose lease ends no sooner than *seconds* from now."""
        return hold._replace(expires=max(hold.expires, self.end_of(seconds)))

    def stays(self, hold: HoldRecord) -> float:
        """For how many seconds the lock stays taken even if the hold is released."""
        return hold.free_from - self.now

    def is_forgotten(self, claim: Claim) -> bool:
        """Whether a queued claim has not asked for FORGET_AFTER seconds."""
        return claim.last_seen + FORGET_AFTER <= self.now

    def lapse(self, hold: HoldRecord) -> None:
        """The grant of *hold* was not confirmed in time: set `lapsed_offer` to when it was made."""
        self.lapsed_offer = max(self.lapsed_offer, hold.expires - CONFIRM_WITHIN)

    # --- services: a store without the means leaves them as they are

    def alive(self, client: str) -> bool:
        """Whether the client is alive, as far as the store sees that; the requesting one is. The
        answer is there when the rules run: a store that must ask a server for it does so before.
        """
        return True

    def process_lives(self, client: str) -> bool:
        """Whether the process lives that renews the holds of a client that others have inherited
        (lifetime "client"). False where the store cannot see that.
        """
        return False

    def descendants(self, client: str) -> tuple[int, ...]:
        """The processes that keep a client alive whose own process has ended."""
        return ()

    def observe_client(self, client: str) -> None:  # noqa: B027
        """Notify the requesting client when *client* dies."""

    def notify(self, claim_id: str, client: str) -> None:  # noqa: B027
        """Notify the client, after this transaction, that asking again may help the claim."""

    def notified(self) -> tuple[str, ...]:
        """The ids of the notified claims that belong to the requesting client itself."""
        return ()

    def observe(self, claim: Claim) -> bool:
        """For WATCH_LASTS seconds, notify the claim when a hold begins or ends, and when the first
        waiter arrives (`notify_watchers`); False if the store cannot do that.
        """
        return False

    def notify_watchers(self) -> None:  # noqa: B027
        """Notify the claims that observe the lock."""

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim is refused for good. Needed where a request may arrive late."""
        return False

    def tombstone(self, claim_id: str) -> None:  # noqa: B027
        """Refuse the claim from now on."""


# --- the dispatch ---------------------------------------------------------------------------------


def answer(
    row_of: Callable[[str], LockRow], request: Any, names: Callable[[], Iterable[str]] = tuple
) -> Any:
    """Carry out a request, on the rows that *row_of* gives by their names; its reply. *names* lists
    the names that may be in use.
    """
    kind = type(request)
    if kind is Acquire:
        return acquire(row_of(request.claim.name), request)
    if kind is Release:
        return release(row_of(request.claim.name), request)
    if kind is Renew:
        return tuple([_renewed(row_of, claim) for claim in request.claims])
    if kind is Inspect:
        return inspect(row_of, request, names)
    if kind is Watch:
        return watch(row_of(request.claim.name), request)
    if kind is Convert:
        return convert(row_of(request.claim.name), request)
    if kind is SetLifetime:
        return set_lifetime(row_of(request.claim.name), request)
    if kind is BreakLock:
        return break_lock(row_of(request.name), request)
    if kind is Resize:
        return resize(row_of(request.name), request)
    raise TypeError(f"not a request about a lock: {request!r}")


# --- the state of a row ---------------------------------------------------------------------------


def expired(row: LockRow, hold: HoldRecord) -> bool:
    """Whether a hold on record has ended by itself."""
    if row.has_ended(hold) and ends_by_time(row, hold):
        return True
    return not outlives(row, hold) and not row.alive(hold.client)


def ends_by_time(row: LockRow, hold: HoldRecord) -> bool:
    """Whether a hold ends with its lease. One that a command has inherited does while the process
    that renews it lives, which may be stopped; then it ends with the command.
    """
    return hold.lifetime != "client" or row.process_lives(hold.client)


def outlives(row: LockRow, hold: HoldRecord) -> bool:
    """Whether the death of its client does not end the hold."""
    if hold.lifetime in ("lease", "cooling"):
        return True
    return hold.free_from > 0.0 and row.stays(hold) > 0.0


def find(row: LockRow, claim_id: str) -> HoldRecord | None:
    """The hold of a claim, if it has not ended."""
    for hold in row.holds():
        if hold.id == claim_id:
            return None if expired(row, hold) else hold
    return None


def waiting(row: LockRow, claims: Iterable[Claim]) -> Iterator[Claim]:
    """Those of the queued claims that count. Dead ones are removed, and those passed over that have
    not asked since a grant that was not confirmed.
    """
    for claim in claims:
        if row.is_forgotten(claim) or not row.alive(claim.client):
            row.quit(claim.id)
        elif claim.last_seen >= row.lapsed_offer:
            yield claim


def first(row: LockRow) -> Claim | None:
    """The first waiter."""
    return next(waiting(row, row.queue()), None)


def in_use(row: LockRow) -> HoldRecord | Claim | None:
    """A hold or a claim, which shows as what the name is in use."""
    holds = row.holds()
    return holds[0] if holds else first(row)


class Seen(NamedTuple):
    """What a request found: the modes of the holds, and the head of the queue."""

    modes: dict[str, Mode]
    head: str | None


def seen(row: LockRow) -> Seen:
    """The state before a request."""
    head = first(row)
    return Seen({hold.id: hold.mode for hold in row.holds()}, head.id if head else None)


def expire_and_grant(row: LockRow) -> None:
    """Remove the holds that have ended, and grant what can be granted."""
    expire(row)
    promote(row)


def expire(row: LockRow) -> None:
    """Remove the holds that have ended."""
    for hold in row.holds():
        if expired(row, hold):
            if hold.offered and row.alive(hold.client):
                row.lapse(hold)
            row.remove(hold.id)


def promote(row: LockRow) -> None:
    """Complete an upgrade whose hold is the only one, and grant each claim that is compatible with
    the holds and with the claims that stay ahead of it.
    """
    holds = list(row.holds())
    if len(holds) == 1 and holds[0].mode == "upgrading":
        row.put(holds[0]._replace(mode="exclusive", token=row.draw()))
        return
    if any(hold.mode in EXCLUSIVE_MODES for hold in holds):
        return
    stay: list[Claim] = []
    for claim in waiting(row, row.queue()):
        if compatible((*holds, *stay), claim, row.limit):
            row.quit(claim.id)
            holds.append(grant(row, claim, min(claim.lease, CONFIRM_WITHIN), offered=True))
        else:
            stay.append(claim)
        if claim.mode in EXCLUSIVE_MODES or (stay and claim.mode in BLOCKING):
            break


def grant(row: LockRow, claim: Claim, lasts: float, *, offered: bool = False) -> HoldRecord:
    """Record a hold with a new token."""
    token, expires = row.draw(), row.end_of(lasts)
    _, claim_id, client, _, metadata, _, mode, permits, *_ = claim
    record = (token, expires, metadata, row.wall, mode, permits, 0.0, 0, offered)
    hold = HoldRecord(claim_id, client, "either", *record)
    if claim.min_hold and not offered:
        hold = confirmed(row, hold, claim)
    if mode == "permits":
        hold = numbered(row, hold)
    row.put(hold)
    return hold


def numbered(row: LockRow, hold: HoldRecord) -> HoldRecord:
    """The hold with the lowest free numbers for its permits, if they are yet to be numbered."""
    if slots_of(hold.metadata) != ():
        return hold
    taken = [slot for other in row.holds() for slot in other.slots]
    slots = lowest_free(taken, hold.permits)
    return hold._replace(metadata=with_marks(hold.metadata, slots, hold.free_from))


def granted(hold: HoldRecord, notified: tuple[str, ...] = ()) -> Grant:
    """The reply to the claim that has this hold."""
    return Grant(hold.token, notified, slots=hold.slots)


def confirmed(row: LockRow, hold: HoldRecord, claim: Claim) -> HoldRecord:
    """The hold of a claim that has just been granted or confirmed, for its whole lease. The first
    time decides until when the lock stays taken: a repeated request must not prolong that.
    """
    free_from = hold.free_from
    if claim.min_hold and not free_from:
        passed = row.wall % claim.min_hold if claim.aligned else 0.0
        free_from = row.end_of(claim.min_hold - passed)
        if hold.mode == "permits":
            marked = with_marks(hold.metadata, slots_of(hold.metadata), free_from)
            hold = hold._replace(metadata=marked)
    expires = max(hold.expires, row.end_of(claim.lease), free_from)
    return hold._replace(expires=expires, free_from=free_from, offered=False)


def notify_changes(row: LockRow, before: Seen, asker: str) -> None:
    """Notify every claim that was granted the lock or has become exclusive; and the first waiter,
    when the holds or the first waiter have changed. The *asker* has its reply.
    """
    holds = row.holds()
    for hold in holds:
        if hold.id != asker and before.modes.get(hold.id) != hold.mode:
            row.notify(hold.id, hold.client)
    head = first(row)
    if head is None or head.id == asker:
        return
    if head.id != before.head or before.modes != {hold.id: hold.mode for hold in holds}:
        row.notify(head.id, head.client)


def grant_and_notify(row: LockRow, before: Seen, asker: str) -> tuple[str, ...]:
    """End a request that may have freed something; return the clients to notify by the reply."""
    expire_and_grant(row)
    notify_changes(row, before, asker)
    return row.notified()


# --- acquire and release --------------------------------------------------------------------------


def acquire(row: LockRow, request: Acquire) -> Grant | Busy | Mismatch:
    """Grant, confirm a grant, or queue."""
    claim = request.claim
    if row.has_tombstone(claim.id):
        return Busy(None, NEVER, (), row.length())
    if row.idle() and (claim.mode != "permits" or claim.permits <= _limit_of(row, claim)):
        return granted(grant(row, claim, claim.lease), row.notified())
    before = seen(row)
    expire(row)
    if row.lapsed_offer:
        row.touch(claim.client)  # before others are granted what it would be passed over for
    promote(row)
    reply = _acquire(row, request)
    notify_changes(row, before, claim.id)
    if before.head is None and row.queued(claim.id):
        row.notify_watchers()  # those of holders who want to know whether others wait
    if type(reply) is Busy:
        return reply._replace(notified=row.notified(), waiting=row.length())
    return reply._replace(notified=row.notified())


def _limit_of(row: LockRow, claim: Claim) -> int:
    """The limit for a claim of permits to an idle name; it is on record from now on."""
    if claim.limit:
        row.limit = claim.limit
    return row.limit


def _acquire(row: LockRow, request: Acquire) -> Grant | Busy | Mismatch:
    claim = request.claim
    hold = find(row, claim.id)
    if hold is not None:
        hold = confirmed(row, hold, claim)
        if hold.mode == "permits":
            hold = numbered(row, hold)  # an earlier version may have granted it
        row.put(hold)
        return granted(hold)
    if mismatch := _mismatch(row, claim):
        row.quit(claim.id)
        return mismatch
    holds = row.holds()
    # For permits every waiter ahead conflicts: it could not be granted what there is.
    ahead = waiting(row, row.ahead(claim.id))
    blocker = next((c for c in ahead if not _passes(c, claim)), None)
    if blocker is None and compatible(holds, claim, row.limit):
        row.quit(claim.id)
        return granted(grant(row, claim, claim.lease))
    return _enqueue(row, request, holds, blocker)


def _passes(ahead: Claim, claim: Claim) -> bool:
    return claim.mode != "permits" and compatible((ahead,), claim)


def _mismatch(row: LockRow, claim: Claim) -> Mismatch | None:
    """Why the claim cannot wait, if that is so: the name is in use as something else."""
    used = in_use(row)
    if used is not None and (used.mode == "permits") != (claim.mode == "permits"):
        return Mismatch(row.limit if used.mode == "permits" else None)
    if claim.mode != "permits":
        return None
    limit = row.limit if used is not None else _limit_of(row, claim)
    # One that was queued before the limit was changed goes on waiting.
    agrees = claim.limit in (0, limit) or row.queued(claim.id)
    return None if agrees and claim.permits <= limit else Mismatch(limit)


def _enqueue(
    row: LockRow, request: Acquire, holds: Sequence[HoldRecord], blocker: Claim | None
) -> Busy:
    """Queue the claim, if it waits; reply the oldest hold, and when to ask again."""
    claim = request.claim
    in_the_way = [hold for hold in holds if not compatible((hold,), claim)]
    retry_after = _next_end(row, in_the_way, only_offered=blocker is not None)
    if request.wait:
        row.join(claim)
        retry_after = min(retry_after, RECHECK_INTERVAL)
        if blocker is not None:
            row.observe_client(blocker.client)
        else:
            _observe_holders(row, in_the_way)
    return Busy(holds[0] if holds else None, retry_after, (), holds=len(holds))


def _next_end(row: LockRow, holds: Iterable[HoldRecord], *, only_offered: bool) -> float:
    """Seconds until the first of these holds ends. Waiters behind others look at the end of a grant
    that is not confirmed yet: the first waiter may be stopped.
    """
    ends = [
        row.remaining(hold) if ends_by_time(row, hold) else row.stays(hold)
        for hold in holds
        if hold.offered or not only_offered
    ]
    return min([end for end in ends if end > 0.0], default=NEVER)


def _observe_holders(row: LockRow, holds: Iterable[HoldRecord]) -> None:
    # The death of a client whose hold outlives it would be reported to every request.
    for client in {hold.client: None for hold in holds if not outlives(row, hold)}:
        row.observe_client(client)


def _renewed(row_of: Callable[[str], LockRow], claim: Claim) -> bool | None:
    """Whether the claim holds, and is renewed; None if that cannot be read."""
    try:
        return renew(row_of(claim.name), claim)
    except Unreadable:
        return None


def renew(row: LockRow, claim: Claim) -> bool:
    """Make the lease end no sooner than its length from now; False if the claim does not hold."""
    hold = find(row, claim.id)
    if hold is None:
        return False
    row.put(row.extend(hold, claim.lease)._replace(offered=False))
    return True


def release(row: LockRow, request: Release) -> Released:
    """Release, or leave the queue."""
    claim_id = request.claim.id
    if request.tombstone:
        row.tombstone(claim_id)
    holds = row.holds()
    cools = request.claim.min_hold > 0
    if len(holds) == 1 and holds[0].id == claim_id and not cools and not row.has_queue():
        row.remove(claim_id)
        return Released("held", row.notified())
    before, behind = seen(row), row.behind(claim_id)
    held = next((hold for hold in holds if hold.id == claim_id), None)
    if held is not None:
        row.remove(claim_id)
        if cools and row.stays(held) > 0.0:
            # Waiters ask again then: they have seen the end of the hold, which is no earlier.
            kept = held._replace(lifetime="cooling", expires=held.free_from)
            row.put(kept._replace(id=COOLING + claim_id))
        return Released("held", grant_and_notify(row, before, claim_id))
    if not row.quit(claim_id):
        return Released("absent", grant_and_notify(row, before, claim_id))
    # The waiter that watched this one must watch another one now.
    if behind is not None:
        row.notify(behind.id, behind.client)
        before = before._replace(head=behind.id)
    return Released("waiting", grant_and_notify(row, before, claim_id))


def tidy(row: LockRow) -> tuple[str, ...]:
    """Remove the holds that have ended and the claims of dead clients, although none asks for them;
    return the clients to notify.
    """
    before = seen(row)
    for _ in waiting(row, row.queue()):
        continue
    return grant_and_notify(row, before, "")


# --- what is done to holds ------------------------------------------------------------------------


def convert(row: LockRow, request: Convert) -> Converted:
    """Change the mode of a hold. One that waits to become exclusive looks again when another hold
    may end.
    """
    claim_id, mode = request.claim.id, request.mode
    before, hold = seen(row), find(row, claim_id)
    if hold is not None and request.step > hold.step:
        if mode == "exclusive" and hold.mode in ("update", "upgrading"):
            row.put(hold._replace(mode="upgrading", step=request.step))
        elif STRENGTH[mode] <= STRENGTH[hold.mode]:
            row.put(hold._replace(mode=mode, step=request.step))
    notified = grant_and_notify(row, before, claim_id)
    hold, retry_after = find(row, claim_id), NEVER
    if hold is not None and hold.mode == "upgrading":
        others = [other for other in row.holds() if other.id != claim_id]
        retry_after = min(_next_end(row, others, only_offered=False), RECHECK_INTERVAL)
        _observe_holders(row, others)
    return Converted(hold, retry_after, notified)


def set_lifetime(row: LockRow, request: SetLifetime) -> LifetimeSet:
    """Change what ends a hold."""
    hold = find(row, request.claim.id)
    if hold is None:
        return LifetimeSet(False, ())
    row.put(hold._replace(lifetime=request.lifetime))
    return LifetimeSet(True, ())


def break_lock(row: LockRow, request: BreakLock) -> Broken:
    """End the hold with that token, or all holds."""
    before = seen(row)
    expire_and_grant(row)
    holds, token = row.holds(), request.token
    broken = [hold for hold in holds if hold.is_meant(token)]
    for hold in broken:
        row.remove(hold.id)
    affected = broken or holds
    notified = grant_and_notify(row, before, "")
    return Broken(affected[0] if affected else None, bool(broken), notified)


def resize(row: LockRow, request: Resize) -> Resized:
    """Change the number of permits. Claims in the queue that are for more ask again, and are
    refused.
    """
    before = seen(row)
    expire(row)
    used = in_use(row)
    if used is not None and used.mode != "permits":
        return Resized(None, grant_and_notify(row, before, ""))
    # Before anything is granted: a claim that fits only the number so far stays where it is.
    row.limit = request.limit
    for claim in row.queue():
        if claim.permits > row.limit:
            row.quit(claim.id)
            row.notify(claim.id, claim.client)
    return Resized(row.limit, grant_and_notify(row, before, ""))


# --- inspection -----------------------------------------------------------------------------------


def state(row: LockRow, name: str) -> LockState:
    """What is shown of a lock. Nothing is changed."""
    holds = tuple(_hold_state(row, hold) for hold in row.holds() if not expired(row, hold))
    claims = tuple(
        claim for claim in row.queue() if row.alive(claim.client) and not row.is_forgotten(claim)
    )
    modes = [hold.record.mode for hold in holds] + [claim.mode for claim in claims]
    return LockState(name, holds, claims, row.limit if modes[:1] == ["permits"] else 0)


def _hold_state(row: LockRow, hold: HoldRecord) -> HoldState:
    if ends_by_time(row, hold):
        return HoldState(hold, row.remaining(hold))
    return HoldState(hold, None, row.descendants(hold.client))


def inspect(
    row_of: Callable[[str], LockRow], request: Inspect, names: Callable[[], Iterable[str]]
) -> tuple[LockState, ...]:
    """One lock, or all that are held or waited for and match."""
    if request.name is not None:
        return (_shown(row_of, request.name),)
    pattern = request.pattern
    # One name is not searched for among all.
    found = [pattern] if is_plain(pattern) else matching(names(), pattern)
    states = [_shown(row_of, name) for name in found]
    return tuple(each for each in states if each.in_use)


def _shown(row_of: Callable[[str], LockRow], name: str) -> LockState:
    """What is shown of a lock; why, if that cannot be read."""
    try:
        return state(row_of(name), name)
    except Unreadable as error:
        return LockState(name, (), (), unreadable=str(error))


def watch(row: LockRow, request: Watch) -> Watched:
    """What is shown of a lock; the claim is notified of changes from now on."""
    current = state(row, request.claim.name)
    for hold in current.holds:
        row.observe_client(hold.record.client)
    return Watched(current, look_again(current), row.observe(request.claim))


def look_again(state: LockState) -> float:
    """After how many seconds a watcher looks again by itself: at the end of a lease, which sends no
    notification.
    """
    ends = [hold.remaining for hold in state.holds if hold.remaining is not None]
    return max(0.0, min([WATCH_INTERVAL, *ends]))
