"""What a driver does to a store when its client ends, or the process forks."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Living(Generic[T]):
    """Those of one kind that are alive. A thread may list them while another one adds some, which
    a WeakSet does not permit.
    """

    def __init__(self) -> None:
        self._references: WeakValueDictionary[int, T] = WeakValueDictionary()

    def add(self, one: T) -> None:
        """Add one that lives, until it does not."""
        self._references[id(one)] = one

    def __iter__(self) -> Iterator[T]:
        return iter([one for ref in self._references.valuerefs() if (one := ref()) is not None])


class Lifecycle:
    """A part of a store that has connections, files or waits. The driver calls each method as one
    step, under its monitor; those of a `BlockingNode` without it.
    """

    def wake(self) -> None:
        """End every wait and every call that has no deadline, until `close`. The driver then waits
        for the background operations to end.
        """

    def close(self) -> None:
        """Close all connections and files. The next call opens new ones."""

    def after_fork(self) -> None:
        """Drop all connections without using them: in a forked child, whose parent still uses
        them, or after the event loop that they belong to was closed.
        """


class BlockingNode(Lifecycle, abc.ABC):
    """A part whose calls block. For asyncio the driver calls it in a thread of its own.

    Its methods are called in any thread, `wake` while a call is under way. `close` may wait for a
    call that another thread is in.
    """

    concurrency = 1
    """In how many threads the driver calls it for asyncio. With one, the calls keep their order; a
    node that is called in several is correct in any order.
    """

    @abc.abstractmethod
    def call(self, request: object, until: float) -> object:
        """Carry out one request and return the reply; NotApplied or OutcomeUnknown if there is none
        by *until*.
        """

    @property
    def urgency(self) -> int:
        """A number that changes when a request may have become urgent that was not before."""
        return 0

    def is_urgent(self, request: object) -> bool:
        """Whether to carry out this request before those that came earlier and are not urgent.
        Called in any thread.
        """
        return False
