"""The adapter suite passes a correct store, and fails each of these defects.

All of them once passed the scenarios of the conformance suite, because the protocol repairs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from testkit import adapter
from testkit.adapter import CHECKS, Check, run_check
from testkit.small_store import (
    Connections,
    Server,
    SmallListener,
    SmallStore,
    SmallWatcher,
    opening,
)

from leaselock import NotApplied, OutcomeUnknown
from leaselock.stores import Changed, Changes, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leaselock.stores import Opened


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made
        made.shutdown()


def run(
    check: Check, server: Server, open_small: Callable[..., Opened], patch: pytest.MonkeyPatch
) -> str | None:
    """Run one check of the suite on a store that these classes are."""
    patch.setattr(adapter, "open_store", open_small)
    return run_check(check, f"small://{server.address}", server.address)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_correct_store_passes(
    check: Check, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(check, server, opening(), monkeypatch) in (None, "it does not tell its time")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_listener_that_is_told_passes(
    check: Check, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opening(listener=SmallWatcher)
    assert run(check, server, opened, monkeypatch) in (None, "it does not tell its time")


class DeletesAnyVersion(SmallStore):
    def delete(self, name: str, version: Any, until: float) -> bool:
        return bool(self.connections.ask(["delete", name, None], until))


class NeverDeletes(SmallStore):
    def delete(self, name: str, version: Any, until: float) -> bool:
        return bool(self.get(name, until).version == version)


class SaysNotApplied(SmallStore):
    def put(self, *words: Any) -> Any:
        try:
            return super().put(*words)
        except OutcomeUnknown as error:
            raise NotApplied(str(error), "unreachable") from error


class LetsErrorsThrough(SmallStore):
    def get(self, name: str, until: float) -> Any:
        try:
            return super().get(name, until)
        except (NotApplied, OutcomeUnknown) as error:
            cause = error.__cause__
            raise (cause if isinstance(cause, OSError) else OSError("closed")) from error


class IgnoresDeadlines(SmallStore):
    def get(self, name: str, until: float) -> Any:
        return super().get(name, until + 3600.0)


class ListsOnePart(SmallStore):
    def list(self, position: Any, until: float) -> Page:
        return super().list(position, until)._replace(position=None)


class Overwrites(SmallStore):
    def put(self, name: str, value: bytes, version: Any, unused: Any, until: float) -> Any:
        present = self.get(name, until).version
        return super().put(name, value, present if version else None, unused, until)


class StaysOpen(SmallStore):
    made: ClassVar[list[SmallStore]] = []

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.made.append(self)

    def close(self) -> None:
        """Close nothing."""


class SharesWithItsChildren(SmallStore):
    def after_fork(self) -> None:
        """Drop nothing."""


class HearsOnlyWhatComes(SmallListener):
    """It compares with what there is when it is asked, and not with what its caller knows."""

    def call(self, request: Any, until: float) -> Sequence[Changed]:
        now = {
            name: found[1] if (found := self.connections.ask(["get", name], until)) else None
            for name in request.versions
        }
        return super().call(Changes(now, request.interrupt), until)


class CannotBeWoken(SmallListener):
    def wake(self) -> None:
        """End nothing."""


class CannotBeInterrupted(SmallListener):
    def call(self, request: Any, until: float) -> Sequence[Changed]:
        interrupt = request.interrupt.__class__()
        request.interrupt.add(self.noted)
        return super().call(Changes(request.versions, interrupt), until)


FAULTY = [
    (DeletesAnyVersion, "a_delete_with_another_version_deletes_nothing"),
    (NeverDeletes, "a_document_is_created_read_replaced_and_deleted"),
    (SaysNotApplied, "a_write_without_a_reply_may_have_been_applied"),
    (LetsErrorsThrough, "a_server_that_is_gone_is_an_error_of_the_library"),
    (IgnoresDeadlines, "a_call_ends_at_its_deadline"),
    (ListsOnePart, "the_list_has_all_names"),
    (Overwrites, "a_write_with_another_version_changes_nothing"),
    (StaysOpen, "close_closes_all_connections"),
    (SharesWithItsChildren, "a_forked_child_opens_connections_of_its_own"),
    (HearsOnlyWhatComes, "a_change_before_the_request_is_reported"),
    (CannotBeWoken, "wake_ends_the_call_of_a_listener"),
    (CannotBeInterrupted, "an_interrupt_ends_the_call_of_a_listener"),
]


@pytest.mark.parametrize(("faulty", "name"), FAULTY, ids=[faulty.__name__ for faulty, _ in FAULTY])
def test_a_defect_is_found(
    faulty: Any, name: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("HANGS", "LATE"):
        # A defect that hangs is found when this is over.
        monkeypatch.setattr(adapter, constant, 2.0)
    classes = {"listener": faulty} if issubclass(faulty, SmallListener) else {"store": faulty}
    check = dict(adapter.by_name())[name]
    with pytest.raises(AssertionError):
        run(check, server, opening(**classes), monkeypatch)
    while StaysOpen.made:
        SmallStore.close(StaysOpen.made.pop())


def test_a_connection_is_used_again(server: Server) -> None:
    host, _, port = server.address.partition(":")
    connections = Connections(host, int(port), lambda: 0.0)
    connections.ask(["get", "a"], 60.0)
    first = connections.free[0]
    connections.ask(["get", "a"], 60.0)
    assert connections.free == [first]
    connections.close()
