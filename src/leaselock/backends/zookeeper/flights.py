"""From our operations to kazoo's requests and back; answers arrive in kazoo's own thread.

Law: a flight is Refused only when none of its writes was done. An answer that a lost connection
took with it makes the whole flight Unknown, whatever the others were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.requests import (
    TAKEN,
    Agree,
    Children,
    Create,
    Delete,
    Ensure,
    Node,
    Operation,
    Put,
    Read,
)
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EPHEMERAL, NUMBERED = 1, 2
WRITES = (Create, Put, Delete, Ensure)
# No node has been written so often. A majority agrees even on a write that comes to nothing; a
# `sync` is answered by a leader alone, also by one who does not know yet that it is none any more.
NEVER = 2**31 - 1
# The words of kazoo's exceptions for a request that may have been carried out, or not.
LOST = "ConnectionLoss SessionExpiredError ConnectionClosedError OperationTimeoutError".split()
LOST += ["ConnectionError"]
# What an operation answers where it meets these.
NORMAL: dict[str, Any] = {"NoNodeError": None, "NodeExistsError": TAKEN, "NotEmptyError": False}
# Agreed upon as well, also where the user may not write.
AGREED = ("BadVersionError", "NoNodeError", "NoAuthError")


class Wire:
    """kazoo's words for our operations."""

    def __init__(self, kazoo: Any, acl: Any, watcher: Callable[[Any], None]) -> None:
        self.kazoo = kazoo
        self.acl = acl
        self.watcher = watcher

    def requests(self, operation: Operation) -> Iterator[Any]:
        """One request, or those for each part of a path."""
        kazoo, path = self.kazoo, operation.path
        if isinstance(operation, Create):
            yield kazoo.Create2(path, operation.data, self.acl, EPHEMERAL | NUMBERED)
        elif isinstance(operation, Put):
            yield kazoo.Create2(path, operation.data, self.acl, EPHEMERAL)
        elif isinstance(operation, Children):
            yield kazoo.GetChildren(path, None)
        elif isinstance(operation, Read):
            yield kazoo.GetData(path, self.watcher if operation.watch else None)
        elif isinstance(operation, Delete):
            yield kazoo.Delete(path, -1)
        elif isinstance(operation, Agree):
            yield kazoo.SetData(path, b"", NEVER)
        else:
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                yield kazoo.Create2("/".join(parts[:end]), b"", self.acl, 0)


def understood(operation: Operation, answer: Any) -> object:
    """Our answer for kazoo's."""
    if isinstance(operation, (Create, Put)):
        path, stat = answer
        return _node(path, operation.data, stat)
    if isinstance(operation, Read):
        data, stat = answer
        return _node(operation.path, data, stat)
    if isinstance(operation, Children):
        return tuple(answer)
    return True if isinstance(operation, Delete) else None


def _node(path: str, data: bytes, stat: Any) -> Node:
    return Node(path, stat.czxid, stat.ephemeralOwner, stat.ctime / 1000.0, data)


class Slot:
    """Where kazoo puts the answer to one request: its `async_object`."""

    __slots__ = ("air", "index", "last", "operation")

    def __init__(self, air: InTheAir, index: int, operation: Operation, last: bool) -> None:
        self.air = air
        self.index = index
        self.operation = operation
        self.last = last

    def set(self, value: Any = None) -> None:
        """It was done."""
        self.air.land(self, understood(self.operation, value), None)

    def set_exception(self, error: BaseException) -> None:
        """It was not, or nobody knows."""
        kind = type(error).__name__
        if isinstance(self.operation, Agree) and kind in AGREED:
            self.air.land(self, None, None)
        elif kind not in NORMAL or (isinstance(self.operation, Ensure) and kind == "NoNodeError"):
            # A part of a path that may not be made is there, as a rule; the last part tells.
            harmless = isinstance(self.operation, Ensure) and not self.last and kind not in LOST
            self.air.land(self, TAKEN if harmless else None, None if harmless else error)
        elif isinstance(self.operation, Delete):
            self.air.land(self, False, None)
        else:
            self.air.land(self, NORMAL[kind], None)


class InTheAir:
    """A flight whose answers are awaited."""

    def __init__(self, operations: Sequence[Operation], done: Callable[[InTheAir], None]) -> None:
        self.operations = operations
        self.done = done
        self.answers: list[object] = [None] * len(operations)
        self.error: BaseException | None = None
        self.written = False
        self.open: set[Slot] = set()

    def slots(self, wire: Wire) -> list[tuple[Any, Slot]]:
        """What to send, and where the answers go."""
        found = []
        for index, operation in enumerate(self.operations):
            requests = list(wire.requests(operation))
            for number, request in enumerate(requests, 1):
                slot = Slot(self, index, operation, number == len(requests))
                self.open.add(slot)
                found.append((request, slot))
        return found

    def land(self, slot: Slot, answer: object, error: BaseException | None) -> None:
        """One answer; kazoo may give the same failure twice."""
        if slot not in self.open:
            return
        self.open.discard(slot)
        if error is None:
            self.answers[slot.index] = answer
            self.written |= isinstance(slot.operation, WRITES) and answer not in (False, TAKEN)
        elif self.error is None or type(error).__name__ in LOST:
            self.error = error
        if not self.open:
            self.done(self)

    def failure(self) -> StoreError | None:
        """What its asker must know; None when all is well."""
        error = self.error
        if error is None:
            return None
        words = f"ZooKeeper: {type(error).__name__} {error}".rstrip()
        lost = type(error).__name__ in LOST or self.written
        return OutcomeUnknown(words) if lost else NotApplied(words)
