"""A listener for client libraries that call a function when something has changed.

A store writes `watch` and `unwatch`. What is told while no request is under way is kept for the
next one, so no change is missed between two requests.
"""

from __future__ import annotations

import abc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends.document.adapter import Changed, Changes
from leaselock._core.client.hold import CLIENT_CLOSED
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leaselock._backends.document.adapter import Found

# Seconds. A condition cannot be waited for longer than some years.
LONGEST_WAIT = 3600.0


class WatchListener(BlockingNode):
    """Waits for changes of documents, of which a client library tells by calling a function."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        # The watches by name: what a watch tells that has ended is dropped.
        self._watches: dict[str, object] = {}
        self._news: dict[str, Found | None] = {}
        self._ended = False

    @abc.abstractmethod
    def watch(self, name: str, tell: Callable[[Found | None], None]) -> None:
        """Watch a document until `unwatch`. Call *tell*, in any thread, with the document as it is
        now, and then after each change; with None if changes may have been missed. NotApplied if
        the store cannot be reached.
        """

    @abc.abstractmethod
    def unwatch(self, name: str) -> None:
        """End a watch."""

    def call(self, request: object, until: float) -> Sequence[Changed]:
        """Wait for changes."""
        if not isinstance(request, Changes):
            raise TypeError(f"not a request of a listener: {request!r}")
        interrupt, versions = request.interrupt, request.versions

        def is_over() -> bool:
            return interrupt.is_set or self._ended

        wake = interrupt.add(self._notify)
        try:
            # Checked after the callback is in place, so no interruption is missed.
            while not is_over():
                self._follow(versions, until)
                with self._changed:
                    if self._news:
                        if changed := self._take(versions):
                            return changed
                        continue
                    remaining = until - self.now()
                    if remaining <= 0.0:
                        break
                    if not is_over():
                        self._wait(min(remaining, LONGEST_WAIT))
        finally:
            interrupt.remove(wake)
        if self._ended:
            raise NotApplied(CLIENT_CLOSED)
        return ()

    def _wait(self, seconds: float) -> None:
        """Wait until something was told, or `_notify` was called."""
        self._changed.wait(seconds)

    def _follow(self, versions: Mapping[str, Any], until: float) -> None:
        """Watch these documents, and no others."""
        for name in [name for name in self._watches if name not in versions]:
            self._end(name)
        for name in [name for name in versions if name not in self._watches]:
            watch = object()
            self._watches[name] = watch
            try:
                self.watch(name, partial(self._tell, name, watch))
            except BaseException:
                del self._watches[name]
                raise

    def _end(self, name: str) -> None:
        with self._changed:
            del self._watches[name]
            self._news.pop(name, None)
        self.unwatch(name)

    def _tell(self, name: str, watch: object, found: Found | None) -> None:
        with self._changed:
            if self._watches.get(name) is watch:
                self._news[name] = found
                self._changed.notify_all()

    def _take(self, versions: Mapping[str, Any]) -> Sequence[Changed]:
        """Return what was told since the last time, of documents that have another version."""
        news, self._news = self._news, {}
        return tuple(
            Changed(name, found)
            for name, found in news.items()
            if found is None or found.version != versions[name]
        )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wake(self) -> None:
        """End the present call; refuse those to come until `close`."""
        self._ended = True
        self._notify()

    def close(self) -> None:
        """End all watches; be ready to be used again."""
        for name in list(self._watches):
            self._end(name)
        self._ended = False

    def after_fork(self) -> None:
        """Forget the watches of the parent. A store that has connections drops them, too."""
        self._reset()
