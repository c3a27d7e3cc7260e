"""Renewals that reach the database while another request converts the hold."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.sql.sessions import Direct, finished

from leaselock._backends.sql.lease import Lease
from leaselock._backends.sql.lock_row import Requester
from leaselock._backends.sql.statements import SqlError
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import (
    Acquire,
    Claim,
    Convert,
    Grant,
    Inspect,
    LockState,
    Mode,
    Release,
    Renew,
)
from leaselock._drivers import system_env

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.statements import Result, Script

ENDLESS = {
    "postgres": "SET LOCAL idle_in_transaction_session_timeout = 0",
    "mysql": "SET SESSION wait_timeout = 3600",
}
LEASE = 600.0
LONGER = 900.0


class Side:
    """One connection, which stops where the test says."""

    def __init__(self, direct: Direct) -> None:
        self.direct = direct
        self.connection = direct.connect()
        self.lease = Lease(direct.dialect)
        self.lease.renewal_wait = 0  # without a limit
        self.before: dict[str, Callable[[], None]] = {}

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script; before one with a statement of that name, call the test."""
        for part in script:
            action = self.before.pop(part if isinstance(part, str) else part[0], None)
            if action is not None:
                self._stay()
                action()
        return self.direct.execute(self.connection, script)

    def _stay(self) -> None:
        """Have the server wait for as long as the test needs, and not end the transaction."""
        text = ENDLESS[self.direct.dialect.name]
        self.direct.execute(self.connection, (("raw", {"text": text}),))

    def ask(self, request: Any) -> Any:
        """Carry out a request, as the client that its claim names."""
        claim = getattr(request, "claim", None)
        requester = Requester(claim.client if claim else "", self.direct.dialect.interrupts, None)
        return finished(self.lease.answer(request, requester, self))  # type: ignore[arg-type]


class Pair:
    """Two connections, and an administrator."""

    def __init__(self, server: Postgres | MariaDB) -> None:
        self.server = server
        self.direct = Direct(store_of(parsed(emptied(server)), system_env.now))
        self.one, self.other = Side(self.direct), Side(self.direct)
        self.replies: list[Any] = []
        self.thread = threading.Thread()

    def begin(self, request: Any) -> None:
        """Begin a request on the other connection; return when it is answered or blocked."""
        self.thread = threading.Thread(target=lambda: self.replies.append(self.other.ask(request)))
        self.thread.start()
        eventually(lambda: self.replies or self._blocked())

    def _blocked(self) -> bool:
        return self.other.connection.backend in self.server.blocked()

    def reply(self) -> Any:
        """What it was answered."""
        self.thread.join()
        (reply,) = self.replies
        return reply

    def state(self) -> LockState:
        """The lock as the server has it."""
        (state,) = self.one.ask(Inspect("x", "*"))
        assert isinstance(state, LockState)
        return state

    def remaining(self) -> float:
        """How long the server still has the only hold."""
        (hold,) = self.state().holds
        assert hold.remaining is not None
        return hold.remaining


@contextmanager
def pair_on(server: Postgres | MariaDB) -> Iterator[Pair]:
    made = Pair(server)
    yield made
    made.direct.close()


@pytest.fixture
def pair(server: Postgres | MariaDB) -> Iterator[Pair]:
    with pair_on(server) as made:
        yield made


def claim(mode: Mode, client: str) -> Claim:
    return Claim("x", f"{client}:1", client, LEASE, "{}", 0.0, mode=mode)


def test_a_renewal_during_the_completion_of_an_upgrade_counts(pair: Pair) -> None:
    reader, writer = claim("shared", "a"), claim("update", "b")
    pair.one.ask(Acquire(reader, False))
    pair.one.ask(Acquire(writer, False))
    pair.one.ask(Convert(writer, 1, "exclusive"))
    renewal = Renew([writer._replace(lease=LONGER)])
    pair.one.before["commit"] = lambda: pair.begin(renewal)
    pair.one.ask(Release(reader, False))
    assert pair.reply() == (True,)
    assert pair.remaining() > LEASE


@pytest.mark.parametrize(
    ("mode", "to"), [("exclusive", "shared"), ("exclusive", "update"), ("update", "exclusive")]
)
def test_a_renewal_during_a_conversion_counts(pair: Pair, mode: Mode, to: Mode) -> None:
    held = claim(mode, "a")
    pair.one.ask(Acquire(held, False))
    pair.one.before["commit"] = lambda: pair.begin(Renew([held._replace(lease=LONGER)]))
    pair.one.ask(Convert(held, 1, to))
    assert pair.reply() == (True,)
    assert pair.remaining() > LEASE


def test_a_renewal_of_an_exclusive_hold_counts_after_its_conversion(pair: Pair) -> None:
    """Its claim was read before the conversion, and it has arrived later."""
    held = claim("exclusive", "a")
    pair.one.ask(Acquire(held, False))
    pair.one.ask(Convert(held, 1, "shared"))
    assert pair.one.ask(Renew([held._replace(lease=LONGER)])) == (True,)
    assert pair.remaining() > LEASE


@pytest.mark.parametrize("mode", ["exclusive", "shared", "permits"])
def test_a_hold_that_has_ended_is_not_renewed(pair: Pair, mode: Mode) -> None:
    ended = claim(mode, "a")._replace(lease=0.0, limit=1)
    pair.one.ask(Acquire(ended, False))
    assert pair.one.ask(Renew([ended._replace(lease=LEASE)])) == (False,)
    assert not pair.state().holds


@pytest.mark.parametrize(("mode", "to"), [("update", "exclusive"), ("exclusive", "shared")])
def test_a_hold_is_seen_once_while_it_is_converted(
    postgres: Postgres, mode: Mode, to: Mode
) -> None:
    """The look reads the row of the lock before the conversion, and the table of holds after it."""
    with pair_on(postgres) as pair:
        held = claim(mode, "a")
        pair.one.ask(Acquire(held, False))

        def look() -> None:
            text = "LOCK TABLE leaselock_hold IN ACCESS EXCLUSIVE MODE"
            pair.direct.execute(pair.one.connection, (("raw", {"text": text}),))
            pair.begin(Inspect("x", "*"))

        pair.one.before["commit"] = look
        pair.one.ask(Convert(held, 1, to))
        (state,) = pair.reply()
        assert [hold.record.mode for hold in state.holds] == [mode]


def refuse() -> None:
    raise SqlError("1047", "WSREP has not yet prepared node for application use")


def test_a_refused_interrupt_does_not_make_a_grant_look_refused(mariadb: MariaDB) -> None:
    """The grant is committed before the listeners of other clients are interrupted. A node of a
    cluster may refuse all statements from one moment on.
    """
    with pair_on(mariadb) as pair:
        pair.one.ask(Acquire(claim("exclusive", "a"), False))
        pair.one.ask(Acquire(claim("shared", "b"), True))
        mariadb.do("UPDATE locks.leaselock_lock SET expires = 1")
        pair.other.before["listener connection"] = refuse
        assert isinstance(pair.other.ask(Acquire(claim("shared", "c"), False)), Grant)
        assert [hold.record.client for hold in pair.state().holds] == ["b", "c"]
