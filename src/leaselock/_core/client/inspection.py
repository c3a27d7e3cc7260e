"""What users see of a lock: who holds it, who waits for it, as values and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._core.client.validation import LONGEST_NAME, shortened
from leaselock._named_tuple import NamedTuple
from leaselock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.contract.backend import Claim, HoldRecord, LockState

ESCAPED = {code: f"\\u{code:04x}" for code in range(0x20)} | {0x22: '\\"', 0x5C: "\\\\"}
ENDLESS = float("inf")
# How many characters the names take at most of the locks that an owner holds while it waits.
LONGEST_HOLDS = 2000
# The names of texts for the holders of broken locks (`break_notice`) begin with it.
NOTICE = "leaselock:broken:"
# The host in metadata that cannot be read.
UNKNOWN = "unknown host"
# No system has a process with a greater number.
GREATEST_PID = 2**32


class Holder(NamedTuple):
    """The holder of a lock, as `Lock.holder` and `Client.locks` report it.

    >>> holder = client.lock("order:5").holder()
    >>> print(holder, "since", time.ctime(holder.since), "token", holder.token)
    web-3, process 4711, MainThread since Sun Nov 22 06:38:23 2026 token 1763793503000000
    """

    host: str
    """The name of its machine; all that is known of another program."""
    pid: int
    """Its process; 0 if it is not known."""
    thread: str
    """Its thread or task."""
    since: float | None
    """When the lock was granted, in Unix time, by the clock of the machine that wrote it; None
    where another library holds the lock and does not say.
    """
    label: str | None
    """The label of its client or lock."""
    token: int | None
    """The fencing token of the grant; None where another library holds the lock without one."""
    remaining: float | None
    """Seconds until the lease ends; None where it does not end by time."""
    version: str | None = None
    """Its version of leaselock; None for another library."""
    detached: bool = False
    """Whether no process holds it: the lease was detached, and is not renewed by itself."""
    cooling_down: bool = False
    """It has released the lock, which stays taken for *remaining* seconds because of `min_hold`."""
    mode: str = "exclusive"
    """How it holds the lock: exclusive, shared, update, upgrading or permits."""
    permits: int = 1
    """How many permits of a semaphore it holds."""
    owner: str = ""
    """Its thread or task, as an identity: the same in all locks, and no other in its process."""
    note: str = ""
    """What `Client.annotate` stored."""
    process: str = ""
    """An identity of its process that no later one with the same number has; empty if unknown."""
    slots: tuple[int, ...] = ()
    """The numbers of its permits, from 0 on; empty unless they are numbered."""
    descendants: tuple[int, ...] = ()
    """The processes that keep the lock although the process that acquired it has ended: those that
    `leaselock run` has started, on the embedded store. 0 for those that this user cannot see.
    """
    age: float | None = None
    """Seconds since *since*, by the clock of the store; None where the store does not tell it."""

    def __str__(self) -> str:
        return _text_of(self)


class Waiter(NamedTuple):
    """A client that waits for a lock, as `Lock.waiters` and `Client.locks` report it.

    >>> for waiter in client.lock("order:5").waiters():
    ...     print(waiter, "since", time.ctime(waiter.since))
    web-4, process 812, worker-2 since Sun Nov 22 06:38:24 2026
    """

    host: str
    """The name of its machine; all that is known of another program."""
    pid: int
    """Its process; 0 if it is not known."""
    thread: str
    """Its thread or task."""
    since: float
    """When it began to wait, in Unix time, by the clock of its machine."""
    label: str | None
    """The label of its client or lock."""
    version: str | None = None
    """Its version of leaselock; None for another library."""
    mode: str = "exclusive"
    """How it wants to hold the lock: exclusive, shared, update or permits."""
    permits: int = 1
    """How many permits of a semaphore it waits for."""
    owner: str = ""
    """Its thread or task, as an identity: the same in all locks, and no other in its process."""
    note: str = ""
    """What `Client.annotate` stored."""
    process: str = ""
    """An identity of its process that no later one with the same number has; empty if unknown."""
    age: float | None = None
    """Seconds since *since*, by the clock of the store; None where the store does not tell it."""

    def __str__(self) -> str:
        return _text_of(self)


class LockInfo(NamedTuple):
    """A lock that is held or waited for, as `Client.locks` lists it.

    >>> for lock in client.locks("order:*"):
    ...     print(lock.name, lock.holder, len(lock.waiters))
    order:5 web-3, process 4711, MainThread 1
    """

    name: str
    holder: Holder | None
    """The oldest; None while the lock is free and its waiters have not been granted it yet."""
    waiters: tuple[Waiter, ...]
    """In the order in which the store will serve them."""
    holders: tuple[Holder, ...] = ()
    """All of them, the oldest first."""
    permits: int = 0
    """How many permits it has, if it is a semaphore."""
    unreadable: str | None = None
    """Why one of its records cannot be read, with the key, row or node that it is in, and how to
    remove it; None if all can be read. The other fields have what can be read. So a lock that is
    unreadable and has no holder may be held.
    """


class LockChange(NamedTuple):
    """A hold of a lock has begun or ended, as `Lock.watch` and `Election.watch` report it.

    >>> for change in client.lock("order:5").watch():
    ...     print(change.name, change.holder or "is free")
    """

    name: str
    holder: Holder | None
    """The present holder, with the time since when; None if the lock is free."""


# What the metadata of a claim says besides host, process number and thread, if it does.
OPTIONAL = [key for key in Waiter._fields[4:] if key not in ("mode", "permits", "age")]


def metadata_of(
    host: str,
    pid: int,
    thread: str,
    label: str | None,
    owner: str = "",
    note: str = "",
    process: str = "",
    holds: Sequence[str] | None = None,
) -> str:
    """The metadata to store with a claim, as JSON: fields of `Waiter`, and what its owner *holds*,
    if that is for others to know.
    """
    host, thread = quoted(shortened(host)), quoted(shortened(thread))
    noted = f', "note": {quoted(shortened(note))}' if note else ""
    identity = f', "process": "{process}"' if process else ""
    if holds is not None and len(names := ", ".join(map(quoted, holds))) <= LONGEST_HOLDS:
        noted += f', "holds": [{names}]'
    return (
        f'{{"host": {host}, "pid": {pid}, "version": "{__version__}", '
        f'"thread": {thread}, "label": {quoted(label)}, "owner": "{owner}"{identity}{noted}}}'
    )


def held_while_waiting(metadata: str) -> list[str] | None:
    """The locks that the owner of a waiting claim holds; None if that is not known."""
    import json  # loaded where it is used, for it takes its time

    try:
        fields = json.loads(metadata)
        known = fields["holds"] if fields["owner"] else []
        return [str(name) for name in known]
    except (LookupError, RecursionError, TypeError, ValueError):
        return None


def quoted(text: str | None) -> str:
    """A text as a JSON string, None as null. The json module takes its time to load."""
    return "null" if text is None else f'"{text.translate(ESCAPED)}"'


def holder_of(
    held: HoldRecord | None,
    remaining: float | None,
    descendants: tuple[int, ...] = (),
    read_at: float = 0.0,
) -> Holder | None:
    """The holder of a hold on record, which was read at that time of the store's clock."""
    if held is None:
        return None
    finite = remaining if remaining is not None and abs(remaining) < ENDLESS else None
    who = _parsed(held.metadata)
    return Holder(
        since=_time(held.since) or None,
        age=_age(held.since, read_at),
        token=held.token or None,
        remaining=finite,
        detached=held.lifetime == "lease",
        cooling_down=held.lifetime == "cooling",
        mode=held.mode,
        permits=held.permits,
        slots=held.slots,
        # An earlier version does not say that its process lives.
        descendants=() if who["pid"] in descendants else descendants,
        **who,
    )


def holders_of(state: LockState) -> list[Holder]:
    """The holders of a lock, the oldest first."""
    holders = (holder_of(*hold, read_at=state.read_at) for hold in state.holds)
    return [holder for holder in holders if holder is not None]


def waiter_of(claim: Claim, read_at: float = 0.0) -> Waiter:
    """The waiter of a queued claim, which was read at that time of the store's clock."""
    who, age = _parsed(claim.metadata), _age(claim.since, read_at)
    return Waiter(since=_time(claim.since), mode=claim.mode, permits=claim.permits, age=age, **who)


def lock_info(state: LockState) -> LockInfo:
    """What users see of one lock."""
    waiters = tuple(waiter_of(claim, state.read_at) for claim in state.waiting)
    holders = tuple(holders_of(state))
    oldest = holders[0] if holders else None
    unreadable = state.unreadable or _unknown((*holders, *waiters))
    return LockInfo(state.name, oldest, waiters, holders, state.limit, unreadable)


def _unknown(participants: Sequence[Holder | Waiter]) -> str | None:
    """The reason for metadata that cannot be read, if there is any."""
    unknown = next((one for one in participants if one.host == UNKNOWN), None)
    if unknown is None:
        return None
    kind = "holder" if isinstance(unknown, Holder) else "waiter"
    return f"the metadata of a {kind} cannot be read: it is {unknown.thread}"


def lock_change(state: LockState) -> LockChange:
    """What users see when a hold has begun or ended."""
    return LockChange(state.name, holder_of(state.held, state.remaining))


def lock_infos(states: Sequence[LockState]) -> list[LockInfo]:
    """What users see of many locks."""
    return [lock_info(state) for state in states if not state.name.startswith(NOTICE)]


def _time(since: float) -> float:
    # Written by other programs; NaN is not less than anything.
    return since if abs(since) < ENDLESS else 0.0


def _age(since: float, read_at: float) -> float | None:
    """How long ago *since* was at that time of the store's clock."""
    return max(0.0, read_at - since) if read_at and _time(since) else None


def _parsed(text: str) -> dict[str, Any]:
    """The fields of `Holder` and `Waiter` that metadata has."""
    import json  # loaded when a holder is shown, for it takes its time

    # Written by other programs of other versions: the types are not taken for granted.
    try:
        fields = json.loads(text)
        who = {"host": _brief(fields["host"]), "thread": _brief(fields["thread"])}
        more = {key: _brief(fields[key]) for key in OPTIONAL if fields.get(key) is not None}
        return {"pid": _pid(fields["pid"]), "label": None, **who, **more}
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return {"host": UNKNOWN, "pid": 0, "thread": f"described as {text!r:.80}", "label": None}


def _pid(number: Any) -> int:
    if not 0 <= (pid := int(number)) <= GREATEST_PID:
        raise ValueError("no process has such a number")
    return pid


def _brief(word: object) -> str:
    """A word of the metadata, as long as this library writes it at most."""
    text = str(word)
    return text if len(text) * 4 <= LONGEST_NAME else shortened(text)


def _text_of(one: Holder | Waiter) -> str:
    label = f" ({one.label})" if one.label else ""
    # Another program without a process that is known is described by its host alone.
    text = f"{one.host}, process {one.pid}, {one.thread}{label}" if one.pid else one.host + label
    # Messages with it are logged: make characters visible that could forge a line there.
    return text if text.isprintable() else text.encode("unicode_escape").decode()
