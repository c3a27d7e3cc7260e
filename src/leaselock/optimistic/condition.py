"""What a conditional write is, and why it matched no row. This module does no I/O.

Invariant: the condition is part of the UPDATE. Reading, comparing and then writing loses updates if
reads come from a snapshot (hazard J12). Rows are read only to find out why nothing was written.
"""

from __future__ import annotations

import operator
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leaselock._core.client.validation import checked_token
from leaselock.errors import FenceRejected, NotApplied, OutcomeUnknown, RowNotFound, StaleVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

# A row that meets the condition when it is read may have changed after the UPDATE.
TRIES = 2
COMPARED = {"=": operator.eq, "<=": operator.le, "<": operator.lt}


class Write(NamedTuple):
    """One conditional UPDATE."""

    table: object
    key: Mapping[str, object]
    values: Mapping[str, object]
    column: str
    """The column of the version or of the fence."""
    new: int
    """The new value of the column."""
    limit: int
    """The value that the column is compared with."""
    condition: str
    """ "=" for a version; "<=" or "<" for a fence, which may also be NULL: not written yet."""

    @property
    def fence(self) -> bool:
        """Whether tokens are compared, not versions."""
        return self.condition != "="


Decisions = Generator[bool | None, Any, int]


class Described(Protocol):
    """What the decisions need to know of a connection."""

    unchanged_is_unmatched: bool
    """Whether rows count as matched only if the UPDATE changed them (MySQL, hazard J13)."""
    snapshots: bool
    """Whether an UPDATE sees rows that a SELECT of the same transaction does not (MySQL)."""

    def name(self, write: Write) -> str:
        """The name of the table, for messages."""
        ...


class Writer(Described, Protocol):
    """Executes a write on a connection."""

    def update(self, write: Write) -> int:
        """Execute the UPDATE. Returns how many rows it matched."""
        ...

    def look(self, write: Write, *, current: bool) -> tuple[object] | None:
        """The version or fence of the row; None without a row. *current*: not from a snapshot."""
        ...


def versioned(
    table: object,
    key: Mapping[str, object],
    values: Mapping[str, object],
    expected: object,
    column: str,
) -> Write:
    """A write of a row that must have the version *expected*."""
    if isinstance(expected, bool) or not isinstance(expected, int):
        raise TypeError(f"expected is the version read, an int, not {expected!r:.80}")
    _check(key, values, column)
    return Write(table, key, values, column, expected + 1, expected, "=")


def fenced(
    table: object,
    key: Mapping[str, object],
    values: Mapping[str, object],
    token: object,
    column: str,
    once: bool,
) -> Write:
    """A write of a row without a token above *token*; with *once*, also without that token."""
    number = checked_token(token)
    _check(key, values, column)
    return Write(table, key, values, column, number, number, "<" if once else "<=")


def _check(key: Mapping[str, object], values: Mapping[str, object], column: str) -> None:
    if not key:
        raise ValueError("without a key every row would be written: say which one")
    for name, value in key.items():
        if value is None:
            raise ValueError(f"{name} is None: no row is found by NULL, which equals nothing")
    for mapping in (key, values):
        for name in mapping:
            if not isinstance(name, str):
                raise TypeError(f"a column is named by a str, not {name!r:.80}")
        if column in mapping:
            raise ValueError(f"{column!r} is set by the write itself")


def handle(writer: Writer, write: Write) -> int:
    """Execute the write, or raise why it was refused. Returns the new value of the column."""
    decisions = decide(writer, write)
    current = next(decisions)
    try:
        while True:
            answer = (
                writer.update(write) if current is None else writer.look(write, current=current)
            )
            current = decisions.send(answer)
    except StopIteration as end:
        number: int = end.value
        return number


def decide(writer: Described, write: Write) -> Decisions:
    """The statements of a write. None asks for the UPDATE, and is sent how many rows it matched;
    a bool asks for `look` with this *current*, and is sent its row. Returns the new value.
    """
    for _ in range(TRIES):
        matched = yield None
        if matched == 1:
            return write.new
        _check_count(writer, write, matched)
        yield from _check_row(writer, write)
    if write.fence and writer.unchanged_is_unmatched:
        return write.new  # the same token and the same values: there was nothing to change
    raise NotApplied(
        f"{writer.name(write)} {dict(write.key)} fits, but the database updates no row: "
        "a trigger, a rule or a policy prevents it"
    )


def _check_count(writer: Described, write: Write, matched: int) -> None:
    if matched < 0:
        raise OutcomeUnknown("the driver does not say how many rows an UPDATE matched: roll back")
    if matched > 1:
        raise ValueError(
            f"{dict(write.key)} is no key of {writer.name(write)}: "
            f"{matched} rows matched and were changed, roll back"
        )


def _check_row(writer: Described, write: Write) -> Generator[bool, Any, None]:
    """Raise the reason why the UPDATE did not match the row; return if it would match now."""
    row = yield False
    if writer.snapshots and (row is None or _fits(write, row[0])):
        row = yield True
    if row is None:
        raise RowNotFound(writer.name(write), dict(write.key))
    if not _fits(write, row[0]):
        raise _reason(writer.name(write), write, row[0])


def _fits(write: Write, value: Any) -> bool:
    if value is None:
        return write.fence
    fits: bool = COMPARED[write.condition](value, write.limit)
    return fits


def _reason(table: str, write: Write, value: Any) -> Exception:
    key = dict(write.key)
    if value is None:
        return NotApplied(
            f"{table} {key} has no version: {write.column} is NULL, which equals nothing. "
            "Make the column NOT NULL DEFAULT 0"
        )
    error = FenceRejected if write.fence else StaleVersion
    return error(table, key, write.limit, int(value))
