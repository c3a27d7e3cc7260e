"""The layout marker of a ZooKeeper store: the node ``%layout`` below the root, which is no lock.

It is read when a session begins, before the first request, and created if it is missing. Where the
root is missing, too, it is looked for again before each request until a request has created the
root. docs/decisions/0018-layout-marker.md has the reasons.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._core.contract.layout import Layout, layout_problem

if TYPE_CHECKING:
    from collections.abc import Callable

# To be raised with every change of the nodes, or of what is in them.
LAYOUT = Layout(1, 1)
# Names of kazoo's exceptions for a lost connection.
LOST = ("ConnectionLoss", "SessionExpiredError", "ConnectionClosedError", "OperationTimeoutError")


def marker_path(root: str) -> str:
    """The path of the marker."""
    return f"{root.rstrip('/')}/%layout"


class LayoutMarker:
    """The check of one connection. Its methods are called in kazoo's thread, and in those of the
    callers of the connection.
    """

    def __init__(self, shown: str, root: str, checked: Callable[[], None]) -> None:
        self.path = marker_path(root)
        self.shown = shown
        self.notify = checked
        # The session in which nothing more has to be checked, and one whose root was missing.
        self.checked = self.rootless = 0
        self.problem: str | None = None
        self.running: tuple[object, int] | None = None

    def admits(self, session: int) -> bool:
        """Whether a request may be sent in that session, as far as the last check says."""
        return session in (self.checked, self.rootless) and self.problem is None

    def begin(self, client: Any, session: int) -> None:
        """Begin a check, unless one is running."""
        if self.running != (client, session):
            self.running = client, session
            self.rootless, self.problem = 0, None
            self._read(client, session)

    def _read(self, client: Any, session: int) -> None:
        client.get_async(self.path).rawlink(partial(self._was_read, client, session))

    def _was_read(self, client: Any, session: int, result: Any) -> None:
        if self.running != (client, session):
            return  # a check of an earlier session
        kind = type(result.exception).__name__
        if kind == "NoNodeError":
            made = client.create_async(self.path, str(LAYOUT).encode())
            made.rawlink(partial(self._was_made, client, session))
            return
        if result.exception is None:
            self._compare(result.value[0].decode("utf-8", "replace"))
        self._end(session, kind)

    def _was_made(self, client: Any, session: int, result: Any) -> None:
        kind = type(result.exception).__name__
        if kind == "NodeExistsError":
            self._read(client, session)
            return
        if self.running != (client, session):
            return
        if kind == "NoNodeError":
            self.rootless = session
        self._end(session, kind)

    def _compare(self, marker: str) -> None:
        older = (
            "end the programs that lock below its root, and delete the marker: "
            f"`delete {self.path}` in zkCli"
        )
        problem = layout_problem(marker, LAYOUT, older)
        if problem is not None:
            self.problem = f"{self.shown} cannot be used for locks: {problem}"

    def _end(self, session: int, kind: str) -> None:
        """A user who may not read or create it is let through: `doctor` warns of that. After a lost
        connection, the next one begins again.
        """
        self.running = None
        if kind in LOST:
            return
        if not (self.rootless or self.problem):
            self.checked = session
        self.notify()
