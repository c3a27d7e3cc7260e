"""All views of a store with records that cannot be read, and locks of each kind in it.

Each view must show every lock that can be read, and name the one that cannot, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from functools import partial
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlsplit

import pytest
from testkit.servers.process import eventually
from tests.pace import pace

import leaselock
from leaselock._cli import main
from leaselock._cli.top_text import column_widths, details, rows, summary
from leaselock._core.client import attempts
from leaselock.documents import lock_document
from leaselock.live import View, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

LIMIT = 30.0
LEASE = 3600.0
PERMITS = 3
# Tokens are counted from 1, or from the time in microseconds.
NEVER_DRAWN = 10**12
# The end of a program that has failed by itself, and not by what it was asked for.
BUG = 70


class Locks:
    """Locks of each kind, held by one client for as long as this is entered."""

    def __init__(self, url: str, kinds: Mapping[str, str]) -> None:
        self.url = url
        self.kinds = kinds
        # At its end each tries for so long to release the damaged ones.
        patience = 3.0 * pace()
        self.holder = leaselock.Client(url, op_timeout=patience)
        self.waiter = leaselock.Client(url, op_timeout=patience)
        self.threads: list[threading.Thread] = []
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        # A waiter that asks again, to report that it waits long, would write its row anew.
        self.patch.setattr(attempts, "LONG_WAIT", 100 * LIMIT)
        for name, kind in self.kinds.items():
            self._acquire(name, kind)
        waited = [name for name, kind in self.kinds.items() if kind == "waited"]
        for name in waited:
            self.threads.append(threading.Thread(target=self._wait, args=(name,), daemon=True))
            self.threads[-1].start()
        for name in waited:
            eventually(self.holder.lock(name).waiters)
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self.waiter, self.holder):
            with contextlib.suppress(leaselock.LeaselockError):
                client.close()
        self.patch.undo()
        for thread in self.threads:
            thread.join(LIMIT)
            assert not thread.is_alive()

    def _acquire(self, name: str, kind: str) -> None:
        if kind == "readers":
            self.holder.rwlock(name, lease=LEASE, renew=False).read.acquire(timeout=LIMIT)
        elif kind == "permits":
            semaphore = self.holder.semaphore(name, permits=PERMITS, lease=LEASE, renew=False)
            semaphore.acquire(timeout=LIMIT, permits=2)
        else:
            self.holder.lock(name, lease=LEASE, renew=False).acquire(timeout=LIMIT)

    def _wait(self, name: str) -> None:
        with contextlib.suppress(leaselock.LeaselockError):
            self.waiter.lock(name, lease=LEASE).acquire(timeout=10 * LIMIT)

    def tried(self, name: str, *, refuses: bool = False) -> Exception | None:
        """What another client's acquire raises; None where the lock is taken. It is not granted.
        One that is refused is refused at once, however long it may wait.
        """
        timeout = LIMIT if refuses else 0.0
        with leaselock.Client(self.url, op_timeout=LIMIT) as other:
            kind = self.kinds[name]
            try:
                if kind == "permits":
                    lease = other.semaphore(name, permits=PERMITS).try_acquire(2, timeout=timeout)
                elif kind == "readers":
                    lease = other.rwlock(name).write.try_acquire(timeout=timeout)
                else:
                    lease = other.lock(name).try_acquire(timeout=timeout)
            except leaselock.LeaselockError as error:
                return error
            assert lease is None, f"{name} was granted although it is held"
            return None


def run(url: str, *words: str) -> tuple[int, str]:
    """Run a command of the command line in this process; its exit code and output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main([words[0], "--url", url, "--op-timeout", f"{LIMIT}s", *words[1:]])
    assert code != BUG, f"{words}: {output.getvalue()}"
    return code, output.getvalue()


def get(page: str, path: str) -> str:
    """Read a resource of the page, which must answer."""
    place = urlsplit(page)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=LIMIT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if path == "/api/events":
            text = (response.readline() + response.readline()).decode()
        else:
            text = response.read().decode()
        assert response.status in (200, 404), f"{path}: {response.status} {text}"
        assert response.status == 200 or path.startswith("/api/lock?"), f"{path}: {text}"
    finally:
        connection.close()
    return text


def listed(url: str) -> dict[str, str | None]:
    """Why each lock cannot be read, by `Client.locks`; all views that list have the same."""
    with leaselock.Client(url, op_timeout=LIMIT) as client:
        locks = client.locks()
        client.deadlocks()
        client.gc()
        findings = " ".join(each.what for each in client.doctor())
    found = {lock.name: lock.unreadable for lock in locks}
    for name, reason in found.items():
        assert not reason or reason in findings, f"doctor does not tell of {name}: {findings}"
    json.dumps([lock_document(lock) for lock in locks])
    view = advance(View(), locks, at=time.time(), clock=1.0)
    view = advance(view, locks, at=time.time(), clock=2.0)
    names = {row.name for row in rows(view, view.locks, widths=column_widths(200))}
    assert names == found.keys()
    assert ("UNREADABLE" in summary(view, sort="name", only="", paused=False)) == any(
        found.values()
    )
    for name, reason in found.items():
        assert not reason or any("unreadable" in line for line in details(view, name))
    return found


def check_commands(url: str, found: Mapping[str, str | None], names: Iterable[str]) -> None:
    """The command line: no command fails by itself, and the lists show what `listed` has found."""
    _, text = run(url, "ls", "--json")
    documents = {each["name"]: each["unreadable"] for each in json.loads(text)["locks"]}
    assert documents == found
    _, text = run(url, "ls")
    for name, reason in found.items():
        assert name in text, text
        assert not reason or f"{name}: unreadable: " in text, text
    for words in (("deadlocks",), ("gc",), ("doctor",), ("doctor", "--json")):
        run(url, *words)
    for name in names:
        _, text = run(url, "show", name)
        assert name in text
        run(url, "show", "--json", name)
        run(url, "wait", "--until", "held", "-w", "0", name)
        run(url, "check", name, "--token", "1")
        run(url, "break", name, "--token", str(NEVER_DRAWN), "--message", "test")


def check_page(page: str, found: Mapping[str, str | None], names: Iterable[str]) -> None:
    """The page: each resource answers, and shows what `listed` has found."""
    assert get(page, "/healthz") == "ok\n"
    # Its view of the store may be a moment older.
    eventually(lambda: _on(page) == found)
    state = json.loads(get(page, "/api/events").partition("data: ")[2])
    assert {each["name"]: each["unreadable"] for each in state["locks"]} == found
    metrics = get(page, "/metrics")
    assert "leaselock_store_up 1.0" in metrics
    counted = sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith("leaselock_store_unreadable{")
    )
    assert counted == sum(reason is not None for reason in found.values())
    for name in names:
        for resource in ("lock", "graph"):
            get(page, f"/api/{resource}?name={quote(name)}")


def _on(page: str) -> dict[str, str | None]:
    documents = json.loads(get(page, "/api/locks"))
    assert documents["error"] is None
    return {each["name"]: each["unreadable"] for each in documents["locks"]}


def check_calls(url: str, names: Iterable[str]) -> None:
    """The calls about one lock: an answer, or an error of the library that names the lock."""
    with leaselock.Client(url, op_timeout=LIMIT) as client:
        for name in names:
            lock = client.lock(name)
            calls: list[Callable[[], object]] = [
                *(
                    lock.holder,
                    lock.holders,
                    lock.waiters,
                    lock.locked,
                    partial(next, lock.watch()),
                ),
                partial(client.adopt, name, NEVER_DRAWN),
                partial(client.break_lock, name, token=NEVER_DRAWN),
            ]
            for error in filter(None, map(raised_by, calls)):
                assert name in str(error), str(error)
                assert type(error).__module__ == "leaselock", type(error)


def raised_by(call: Callable[[], object]) -> leaselock.LeaselockError | None:
    """The error of the library that the call raises, if it raises one."""
    try:
        call()
    except leaselock.LeaselockError as error:
        return error
    return None


def check_shown(
    found: Mapping[str, str | None], kinds: Mapping[str, str], damaged: Collection[str]
) -> None:
    """Every lock is there: the damaged ones with a reason, the others as they are."""
    assert found.keys() >= kinds.keys(), f"hidden: {kinds.keys() - found.keys()}"
    wrong = {name: reason for name, reason in found.items() if bool(reason) != (name in damaged)}
    assert wrong == {}
