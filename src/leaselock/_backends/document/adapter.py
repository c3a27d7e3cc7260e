"""What a store must do so that the protocol `document` keeps locks in it.

A lock is one document: a text that the protocol makes and reads. The store keeps it under the name
of the lock, with a version that changes with every write. An adapter is

* a `DocumentStore`: reads, writes and lists documents. Its calls block; several of them run at the
  same time, each in a thread of its own, with threads and with asyncio alike;
* where the store reports changes, a *listener*: another `BlockingNode`, which answers `Changes`;
* `Traits`: what the protocol cannot see in the replies;
* a `StoreType`, whose function *open* returns `leaselock._backends.document.store.opened(...)`.

What the store must guarantee:

* **Reads and writes are linearizable**, for one document at a time.
* **A write compares the version and sets the document in one step.**
* **What was acknowledged is not lost.**

Errors: raise `NotApplied` if the store certainly has not carried out a request (it was not sent, or
was refused), `OutcomeUnknown` if it may have. Their *reason* is "unreachable" (no answer, or the
store is overloaded and asks to come again later), "denied" (login, rights), "misconfigured" (a
missing table, a version that is not supported) or "refused". A write that arrives late, or twice,
is harmless: the second one finds another version.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._core.contract.backend import Doctor, Finding, Setup
from leaselock._core.contract.effects import Request, Signal
from leaselock._core.contract.lifecycle import BlockingNode

if TYPE_CHECKING:
    from collections.abc import Callable


class Found(NamedTuple):
    """A document as it is in the store."""

    value: bytes | None
    """Its text; None if there is no document."""
    version: Any
    """What a write compares: an ETag, a revision. It is only compared for equality. None if there
    is no document.
    """
    now: float | None = None
    """The time by the store's clock when it answered, in Unix time, or None if it does not say. It
    may have been later by up to `Traits.clock_uncertainty`, but not earlier.
    """


class Stored(NamedTuple):
    """The document was written."""

    version: Any
    """Its new version."""
    now: float | None = None
    """As in `Found`."""


class Conflict(NamedTuple):
    """Nothing was written: the document has another version, or there is none."""

    found: Found | None
    """What there is instead, as it was when the versions were compared. None if the store does not
    say: then the protocol reads.
    """


class Changed(NamedTuple):
    """A listener has seen a change."""

    name: str
    found: Found | None
    """The document after the change, or after a later one. None if the listener does not know it:
    then the protocol reads.
    """


class Page(NamedTuple):
    """A part of the list of all documents."""

    documents: Sequence[tuple[str, Found | None]]
    """Their names, in any order, and what there is under each, or None if the list of the store
    does not contain it: then the protocol reads. A name that was deleted meanwhile may be missing.
    """
    position: Any = None
    """Where the next part begins; None after the last one."""


class Get(NamedTuple("Get", [("name", str)]), Request[Found]):
    """Read a document, linearizably."""

    __slots__ = ()
    method = "get"


class Put(
    NamedTuple(
        "Put", [("name", str), ("value", bytes), ("version", Any), ("unused_after", float | None)]
    ),
    Request[Stored | Conflict],
):
    """Write a document if it still has this *version*; None: if there is no document.

    *unused_after* is for a store that can delete documents by itself, and others ignore it: the
    Unix time from which on the document, as it is written here, may be deleted. None: never.
    """

    __slots__ = ()
    method = "put"


class Delete(NamedTuple("Delete", [("name", str), ("version", Any)]), Request[bool]):
    """Delete a document if it still has this *version*; reply whether it was deleted."""

    __slots__ = ()
    method = "delete"


class List(NamedTuple("List", [("position", Any)]), Request[Page]):
    """List the documents from a *position* on, which is None at first."""

    __slots__ = ()
    method = "list"


class Changes(
    NamedTuple("Changes", [("versions", Mapping[str, Any]), ("interrupt", Signal)]),
    Request[Sequence[Changed]],
):
    """Sent to a listener: wait until one of these documents has another version than this, where
    None is the version of a document that there is not; reply each that has. Changes that happened
    before the request count. The reply is empty at the deadline, and when *interrupt* is set.

    One request follows the other, with almost the same names each time: a listener keeps its
    watches from one to the next, and ends those of names that are not listed any more.

    A listener that cannot go on (the connection is lost, a revision was compacted) either replies
    ``Changed(name, None)`` for what it may have missed, or raises NotApplied, whereupon the waiters
    look for themselves and the protocol asks it again after a moment.
    """

    __slots__ = ()


class Traits(NamedTuple):
    """What the protocol must know of a store besides its replies.

    What it sees in the replies is not declared: whether a conflict returns the present document,
    and whether the store tells its time. Whether it reports changes is whether it has a listener.
    """

    soonest_poll: float = 0.02
    """Seconds: without a listener, a waiter does not read more often than this. What a request
    costs decides it.
    """
    latest_poll: float = 0.5
    """Seconds: without a listener, the first waiter reads at least this often."""
    clock_uncertainty: float = 2.0
    """Seconds by which the time of the store may be later than `Found.now` says: the granularity of
    that, plus how much the clocks of its servers differ, or one of them may jump.
    """
    least_poll: float = 0.001
    """Seconds: the least that the URL may say for *soonest_poll*."""
    parallel: int = 8
    """How many requests a client may send at the same time: for renewals of many locks, and under
    asyncio for all requests.
    """


class DocumentStore(BlockingNode):
    """Carries out the requests of one client. The methods block, and are called by several threads
    at the same time.

    Each returns, or raises NotApplied or OutcomeUnknown, by *until*, on the clock that `open` of
    the store's `StoreType` was given (as *now*); that one never jumps. No method repeats a request
    on its own, except on a connection that the server has closed while it was idle.
    """

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.concurrency = traits.parallel

    def call(self, request: Any, until: float) -> Any:
        """Carry out one request: the method that it names."""
        carry_out: Callable[..., object] = getattr(self, request.method)
        return carry_out(*request, until)

    def is_urgent(self, request: object) -> bool:
        """Whether it is a `Put`: reads of many waiters must not delay renewals and releases."""
        return type(request) is Put

    def describe(self, name: str) -> tuple[str, str]:
        """How messages name the document of a lock, and how an operator removes it: the text behind
        "To remove it:", such as a command.
        """
        return f"the document {name!r}", "delete it in the store"

    @abc.abstractmethod
    def get(self, name: str, until: float) -> Found:
        """Read a document, linearizably: never from a replica or a cache that may be behind."""

    @abc.abstractmethod
    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write a document if it still has this *version*; None: if there is no document."""

    @abc.abstractmethod
    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete a document if it still has this *version*; return whether it was deleted."""

    @abc.abstractmethod
    def list(self, position: Any, until: float) -> Page:
        """A part of the list of all documents: as much as one request gives, about 1,000."""

    @abc.abstractmethod
    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Examine the configuration of the store. What cannot be examined is a finding, too."""

    @abc.abstractmethod
    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Create what the store needs before its first use, with *dry* only list it; return what
        was done, or nothing where nothing is needed.
        """


__all__ = [
    "Changed",
    "Changes",
    "Conflict",
    "Delete",
    "Doctor",
    "DocumentStore",
    "Found",
    "Get",
    "List",
    "Page",
    "Put",
    "Setup",
    "Stored",
    "Traits",
]
