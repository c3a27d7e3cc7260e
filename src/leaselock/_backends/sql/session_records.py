"""The rows of the table of sessions: who holds and who waits by "row" and "advisory"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.contract.backend import (
    COMPATIBLE_MODES,
    Claim,
    HoldRecord,
    HoldState,
    LockState,
)
from leaselock._core.rows.records import CLIENTS, is_count, is_text

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Mode

# The mode of a row whose columns do not show whether its session lives; see the statement.
NO_SESSION = "of no session"


class SessionRow(NamedTuple):
    """A session that holds or waits, as "sessions" and "holding sessions" read it."""

    name: str
    id: str
    client: str
    token: int | None
    """None while it waits."""
    backend: int
    metadata: str
    since: int
    mode: Mode

    def hold(self) -> HoldRecord:
        """What it holds."""
        known = self.token or 0, 0.0, self.metadata, self.since / 1e6
        return HoldRecord(self.id, self.client, "client", *known, mode=self.mode)

    def claim(self) -> Claim:
        """What it waits for."""
        who = self.name, self.id, self.client
        return Claim(*who, 0.0, self.metadata, self.since / 1e6, mode=self.mode)

    def is_readable(self) -> bool:
        """Whether it has what it should have."""
        texts = (self.name, self.id, self.client, self.metadata)
        return (
            all(map(is_text, texts))
            and CLIENTS.fullmatch(self.client) is not None
            and self.id.startswith(f"{self.client}:")
            and (self.token is None or is_count(self.token))
            and is_count(self.since)
            and self.mode in COMPATIBLE_MODES
        )

    def damage(self) -> str:
        """Why it cannot be read."""
        row = f"a row of {self.name!r} in the table leaselock_session cannot be read"
        if self.mode == NO_SESSION:
            return (
                f"{row}: its liveness_key is not that of its id {self.id!r:.80}, or its backend "
                f"{self.backend} not that of its session. It ends with its connection; `leaselock "
                "gc` removes the row after that"
            )
        return (
            f"{row}: its id is {self.id!r:.80}, its client {self.client!r:.80}, its token "
            f"{self.token!r}, its start {self.since!r}, its mode {self.mode!r:.80}. It ends with "
            f"the connection {self.backend}"
        )


class ForeignSession(NamedTuple):
    """A session of another program that has the lock."""

    backend: int
    user: str
    application: str
    since: int
    mode: Mode

    def row(self, name: str) -> SessionRow:
        """The same as a row without a token."""
        who = ", ".join(filter(None, (self.user, self.application, f"connection {self.backend}")))
        metadata = {"host": f"another program ({who})", "pid": 0, "thread": "", "label": None}
        found = f"connection {self.backend}", "", 0, self.backend
        return SessionRow(name, *found, json.dumps(metadata), self.since, self.mode)


def holders(rows: list[SessionRow]) -> list[SessionRow]:
    """The rows of holders, in the order of their tokens."""
    held = [(int(row.token), row) for row in rows if row.token is not None]
    return [row for _, row in sorted(held, key=lambda pair: pair[0])]


def lock_state(name: str, rows: list[SessionRow], held: list[SessionRow]) -> LockState:
    """What is shown of a lock."""
    damaged = [row for row in rows if not row.is_readable()]
    waiting = tuple(row.claim() for row in rows if row.token is None and row not in damaged)
    holds = tuple(HoldState(row.hold(), None) for row in held if row not in damaged)
    return LockState(name, holds, waiting, unreadable=damaged[0].damage() if damaged else "")
