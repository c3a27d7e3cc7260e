"""What a client reports while it works: `on_event`, and the logger `leaselock`."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.pace import pace

import leaselock
from leaselock import Event
from leaselock._api.log import described
from leaselock._core.client.events import LONG_WAIT
from leaselock._drivers.system_env import now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE = "memory://events"


@pytest.fixture
def client() -> Iterator[leaselock.Client]:
    with leaselock.Client(STORE) as client:
        yield client


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_pair_is_reported(client: leaselock.Client) -> None:
    events: list[Event] = []
    client.on_event(events.append)
    with client.lock("a") as lease:
        assert kinds(events) == ["acquiring", "granted"]
        with client.lock("a"):
            """A nested acquisition asks no store, and is no event."""
    assert kinds(events) == ["acquiring", "granted", "released"]
    assert {event.name for event in events} == {"a"}
    assert len({event.id for event in events}) == 1
    assert events[1].token == events[2].token == lease.token
    assert events[0].seconds == 0.0 <= events[1].seconds <= events[2].seconds + 60.0


def test_a_busy_lock_is_reported_with_its_holder(client: leaselock.Client) -> None:
    events: list[Event] = []
    with leaselock.Client(STORE, label="the other") as other, other.lock("a"):
        client.on_event(events.append)
        assert client.lock("a").try_acquire() is None
        assert kinds(events) == ["acquiring", "timed_out"]
        assert events[1].holder is not None
        assert "the other" in str(events[1].holder)
        # A wait whose time has passed when the first answer comes is not reported as busy.
        timeout = 0.001
        while "busy" not in kinds(events):
            events.clear()
            timeout *= 10
            called = now()
            assert client.lock("a").try_acquire(timeout=timeout) is None
        assert kinds(events) == ["acquiring", "busy", "timed_out"]
        assert events[-1].at - called >= timeout
        # The wait counts from its first request, a moment after the call.
        began = events[1].at - events[1].seconds
        assert events[-1].seconds == pytest.approx(events[-1].at - began)


def test_a_break_and_the_loss_are_reported_once(client: leaselock.Client) -> None:
    events: list[Event] = []
    with leaselock.Client(STORE) as other:
        other.on_event(events.append)
        lease = client.lock("a").acquire()
        client.on_event(events.append)
        assert other.break_lock("a") is not None
        assert other.break_lock("a") is None
        assert kinds(events) == ["broken"]
        with pytest.raises(leaselock.LeaseLost):
            lease.extend(30.0)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
    client.close()
    assert kinds(events) == ["broken", "lost"]
    assert events[1].token == lease.token
    assert "broken by force" in events[1].reason


def test_an_error_of_the_store_is_reported(client: leaselock.Client, tmp_path: Path) -> None:
    events: list[Event] = []
    with leaselock.Client(f"sqlite:///{tmp_path}/none/locks.db") as broken:
        broken.on_event(events.append)
        with pytest.raises(leaselock.StoreError) as failed:
            broken.lock("a").acquire(timeout=0)
    assert kinds(events) == ["acquiring", "failed"]
    assert str(failed.value) == f"'a' in {broken.url}: {events[1].reason}"


def test_a_listener_that_fails_changes_nothing(
    client: leaselock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    def fail(_event: Event) -> None:
        raise RuntimeError("my own mistake")

    client.on_event(fail)
    with client.lock("a") as lease:
        assert not lease.lost
    assert [str(each.exc_value) for each in reported] == ["my own mistake"] * 3
    with pytest.raises(TypeError, match="a listener is a function"):
        client.on_event("print")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a note is made by a function"):
        client.annotate("print")  # type: ignore[arg-type]


def test_a_note_is_stored_with_holds_and_waits(client: leaselock.Client) -> None:
    notes = iter(["first", "", "second"])
    client.annotate(lambda: next(notes))
    with client.lock("a"), client.lock("b"), client.lock("c"):
        held = {info.name: info.holder.note for info in client.locks() if info.holder}
    assert held == {"a": "first", "b": "", "c": "second"}


def test_renewals_are_reported(client: leaselock.Client) -> None:
    events: list[Event] = []
    renewed = asyncio.Event()
    lease = 0.9 * pace()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def listen(event: Event) -> None:
            events.append(event)
            if event.kind == "renewed":
                loop.call_soon(renewed.set)

        async with leaselock.AsyncClient(STORE) as tasks:
            tasks.on_event(listen)
            async with tasks.lock("a", lease=lease):
                await renewed.wait()

    asyncio.run(main())
    found = next(event for event in events if event.kind == "renewed")
    assert 0.0 < found.seconds < found.lease == pytest.approx(lease)
    assert kinds(events)[-1] == "released"


# --- the log --------------------------------------------------------------------------------------


def test_debug_logs_acquire_and_release(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leaselock")
    with leaselock.Client(STORE) as client, client.lock("a") as lease:
        pass
    acquire, acquired, released = caplog.records
    assert acquire.message == "acquire 'a'"
    assert acquired.message.endswith(f"token {lease.token}")
    assert released.message.startswith("released 'a' after ")
    extra = vars(released)
    assert (extra["lock"], extra["token"], extra["event"]) == ("a", lease.token, "released")
    assert extra["store"] == STORE


def test_a_loss_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with leaselock.Client(STORE) as client:
        lease = client.lock("a").acquire()
        client.break_lock("a")
        with pytest.raises(leaselock.LeaseLost):
            lease.extend(30.0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "broken by force" in caplog.records[1].message


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (Event("granted", "a", "1", 0.0, LONG_WAIT, 30.0, 7), logging.DEBUG),
        (Event("granted", "a", "1", 0.0, 0.1, 30.0, 7), logging.DEBUG),
        (Event("timed_out", "a", "1", 0.0, LONG_WAIT, 30.0), logging.DEBUG),
        (Event("waiting", "a", "1", 0.0, LONG_WAIT, 30.0), logging.WARNING),
        (Event("renewed", "a", "1", 0.0, 19.0, 30.0, 7), logging.DEBUG),
        (Event("renewed", "a", "1", 0.0, 9.0, 30.0, 7), logging.WARNING),
        (Event("renewal_failed", "a", "1", 0.0, 9.0, 30.0, 7, None, "silence"), logging.WARNING),
        (Event("busy", "a", "1", 0.0), logging.DEBUG),
        (Event("failed", "a", "1", 0.0, reason="silence"), logging.ERROR),
    ],
)
def test_levels(event: Event, level: int) -> None:
    assert described(event)[0] == level
    assert event.reason in described(event)[1]


def test_a_program_without_logging_does_not_load_it() -> None:
    program = (
        "import sys, leaselock\n"
        "with leaselock.Client('memory://') as client, client.lock('a'): pass\n"
        "print('logging' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
