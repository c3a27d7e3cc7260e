"""The order of a queue in the database whose first waiters are dead or stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.sql.sessions import Direct, finished

from leaselock._backends.sql.keys import CLIENT, number, word
from leaselock._backends.sql.lease import Lease
from leaselock._backends.sql.lock_row import HEAD, Head, Requester
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import Acquire, Claim, Inspect, Mode, Release, Renew
from leaselock._drivers import system_env
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.statements import Part, Result, Script
    from leaselock._core.contract.backend import LockState

DEAD = 5


class Requests:
    """Requests of several clients on one connection."""

    def __init__(self, server: Postgres | MariaDB) -> None:
        self.direct = Direct(store_of(parsed(emptied(server)), system_env.now))
        self.connection = self.direct.connect()
        self.head = HEAD

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script."""
        return self.direct.execute(self.connection, script)

    def key(self, client: str) -> str | int:
        """The key that shows that a client listens."""
        return (word if self.direct.dialect.interrupts else number)(CLIENT, client)

    def is_free(self, key: str | int) -> bool:
        """Whether no session has the key."""
        text = f"SELECT pg_try_advisory_xact_lock({key})"
        if self.direct.dialect.interrupts:
            text = f"SELECT IS_USED_LOCK('{key}') IS NULL"
        return bool(self.direct.execute(self.connection, (("raw", {"text": text}),))[0].rows[0][0])

    def ask(self, request: Any, client: str, *, listens: bool = False) -> Any:
        """Carry out a request of a client."""
        polls = self.direct.dialect.interrupts
        key = self.key(client) if listens else None
        requester = Requester(client, polls, key)
        lease = Lease(self.direct.dialect)
        lease.head = self.head
        return finished(lease.answer(request, requester, self))  # type: ignore[arg-type]

    def state(self) -> LockState:
        """The lock as it is."""
        state: LockState = self.ask(Inspect("x", "*"), "")[0]
        return state


@pytest.fixture
def requests(server: Postgres | MariaDB) -> Iterator[Requests]:
    made = Requests(server)
    yield made
    made.direct.close()


def claim(client: str, serial: int) -> Claim:
    return Claim("x", f"{client}:{serial}", client, 600.0, "{}", 0.0)


def test_dead_waiters_do_not_change_the_order_of_the_others(requests: Requests) -> None:
    """A process that is killed may have had more waiters than are read at once."""
    holder = claim("holder", 1)
    requests.ask(Acquire(holder, False), "holder")
    listener = requests.direct.connect()
    requests.direct.execute(
        listener, (("lock liveness key", {"liveness_key": requests.key("dead")}),)
    )
    for serial in range(DEAD):
        requests.ask(Acquire(claim("dead", serial), True), "dead", listens=True)
    for serial in range(DEAD):
        requests.ask(Acquire(claim(f"living{serial}", serial), True), f"living{serial}")
    listener.cut()
    eventually(lambda: requests.is_free(requests.key("dead")))
    requests.ask(Release(holder, False), "holder")
    assert [hold.record.client for hold in requests.state().holds] == ["living0"]
    assert [waiter.client for waiter in requests.state().waiting] == [
        f"living{serial}" for serial in range(1, DEAD)
    ]


def test_readers_behind_a_writer_wait_though_not_all_waiters_are_read(requests: Requests) -> None:
    requests.head = Head(1, 4)

    def ask(serial: int, mode: Mode) -> None:
        request = Acquire(claim(f"client{serial}", serial)._replace(mode=mode), True)
        requests.ask(request, f"client{serial}")

    holder = claim("holder", 0)
    requests.ask(Acquire(holder, False), "holder")
    modes: list[Mode] = [*["shared"] * 6, "exclusive", *["shared"] * 3]  # type: ignore[list-item]
    for serial, mode in enumerate(modes):
        ask(serial, mode)
    requests.ask(Release(holder, False), "holder")
    state = requests.state()
    assert [hold.record.client for hold in state.holds] == [f"client{n}" for n in range(6)]
    assert [waiter.client for waiter in state.waiting] == [f"client{n}" for n in range(6, 10)]


def test_a_client_that_stops_in_a_transaction_delays_no_other_lock(requests: Requests) -> None:
    """A renewal leaves out the lock whose row is locked, and renews the others at once."""
    mysql = requests.direct.dialect.interrupts
    locked, free, shared = (
        Claim(name, f"holder:{name}", "holder", 600.0, "{}", 0.0) for name in ("a", "b", "c")
    )
    shared = shared._replace(mode="shared")
    for claim in (locked, free, shared):
        requests.ask(Acquire(claim, False), "holder")
    stopped = requests.direct.connect()
    patient = "SET SESSION wait_timeout = 3600"
    if not mysql:
        patient = "SET LOCAL idle_in_transaction_session_timeout = 0"
    requests.direct.execute(stopped, ("begin", _raw(patient), ("lock", {"name": "a"})))
    began = system_env.now()
    # In any order; the client asks again for the one that is not known.
    assert requests.ask(Renew((free, locked, shared)), "holder") == (True, None, True)
    assert requests.ask(Renew((locked,)), "holder") == (None,)
    # It waited for the row three times, for a tenth of a second: others wait for three seconds.
    assert system_env.now() < began + 6.0
    requests.direct.execute(stopped, ("commit",))
    assert requests.ask(Renew((locked, free)), "holder") == (True, True)
    requests.ask(Release(locked, False), "holder")
    assert requests.ask(Renew((locked, free)), "holder") == (False, True)


def test_a_client_that_stops_in_a_transaction_loses_its_row(requests: Requests) -> None:
    """The server ends its session after a second."""
    holder = claim("holder", 1)
    requests.ask(Acquire(holder, False), "holder")
    stopped = requests.direct.connect()
    requests.direct.execute(stopped, ("begin", ("lock", {"name": "x"})))
    # Waits for the row.
    requests.ask(Release(holder, True), "holder")
    assert requests.state().holds == ()
    with pytest.raises(OutcomeUnknown):
        requests.direct.execute(stopped, ("commit",))


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_an_offer_is_stored_as_one_until_its_waiter_confirms_it(
    requests: Requests, mode: Mode
) -> None:
    holder, waiter = claim("holder", 1), claim("waiter", 1)._replace(mode=mode)
    requests.ask(Acquire(holder, False), "holder")
    requests.ask(Acquire(waiter, True), "waiter")
    requests.ask(Release(holder, False), "holder")
    table = "lock" if mode == "exclusive" else "hold"

    def offered() -> object:
        text = f"SELECT offered FROM leaselock_{table} WHERE id = '{waiter.id}'"
        (row,) = requests.direct.execute(requests.connection, (_raw(text),))[0].rows
        return row[0]

    assert offered() == 1
    requests.ask(Acquire(waiter, True), "waiter")
    assert offered() == 0


def _raw(text: str) -> Part:
    return "raw", {"text": text}
