"""Maintenance of the database: doctor, setup, garbage collection.

The tables are created by `Client.setup` and `leaselock setup` only. Creating them takes rights that
a program which only locks does not need, and belongs to the migrations (hazard J19).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.sql.lease import Lease
from leaselock._backends.sql.lock_row import Requester
from leaselock._backends.sql.records import micros
from leaselock._backends.sql.server_info import check_version, tables_problem
from leaselock._backends.sql.statements import SqlError
from leaselock._core.contract.backend import Collected, CollectGarbage, Doctor, Setup, Unreadable
from leaselock._core.rows import rules
from leaselock._core.rows.maintenance import half_way
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.server_info import ServerInfo
    from leaselock._backends.sql.statements import Part, Row, Value

MAINTENANCE = (Doctor, Setup, CollectGarbage)
# How many rows `gc` looks at, or removes, at once.
BATCH = 250


async def maintain(
    request: object, server: ServerInfo, executor: Executor, now: Callable[[], float]
) -> object:
    """Carry out a maintenance request."""
    if isinstance(request, Setup):
        return await _set_up(server, request.dry, executor)
    if isinstance(request, CollectGarbage):
        return await Sweep(server, executor, now).run(request.position)
    from leaselock._backends.sql.doctor import examine  # loaded where it is used

    return await examine(server, executor)


async def _set_up(server: ServerInfo, dry: bool, executor: Executor) -> tuple[str, ...]:
    version = await _version(server, executor)
    if version is not None:
        check_version(server, version)
        problem = await tables_problem(server, executor)
        if problem is not None:
            text = f"{server.target.shown} cannot be used: {problem}"
            raise NotApplied(text, "misconfigured")
        return ()
    schema = server.dialect.schema
    if not dry:
        await executor.execute(("begin setup",))
        for statement in schema:
            await executor.execute((("raw", {"text": statement}),))
        await executor.execute(("end setup",))
    return tuple(f"{statement};" for statement in schema)


async def _version(server: ServerInfo, executor: Executor) -> Row | None:
    """The row with the version of the tables; None if there is none."""
    try:
        (version,) = await executor.execute((("fact", {"fact": "schema"}),))
    except SqlError as error:
        if error.state not in server.dialect.missing:
            raise
        return None
    return version.one()


class Position(NamedTuple):
    """Where the next step of a garbage collection begins."""

    values: Mapping[str, Value]
    """The times by which it decides, as of its begin."""
    part: int = 0
    after: str = ""
    """The last name that this part has examined."""


class Sweep:
    """One step of `gc`. It goes through the tables in batches, so that no statement locks many rows
    for long.
    """

    def __init__(self, server: ServerInfo, executor: Executor, now: Callable[[], float]) -> None:
        self.server = server
        self.executor = executor
        self.now = now
        self.enough = half_way(now(), executor.until)
        self.values: Mapping[str, Value] = {}
        # Each goes on after a name, and returns how many records it has removed and the last name
        # that it has examined; None if it is done.
        self.parts: tuple[Callable[[str], Awaitable[tuple[int, str | None]]], ...] = (
            partial(self._each, "ended names", self._end),
            partial(self._batch, "collect wakeups"),
            partial(self._batch, "collect sessions"),
            partial(self._each, "unused rows", self._remove_row),
            self._locks,
        )

    async def run(self, position: object) -> Collected:
        """Remove what has expired, and the rows of names that were not locked for the token TTL."""
        if not isinstance(position, Position):
            position = Position(await self._times())
        self.values, part, after = position
        count = 0
        while part < len(self.parts):
            removed, last = await self.parts[part](after)
            count += removed
            part, after = (part + 1, "") if last is None else (part, last)
            if self.now() >= self.enough:
                return Collected(count, Position(self.values, part, after))
        return Collected(count)

    async def _times(self) -> Mapping[str, Value]:
        (now,) = await self.executor.execute(("now",))
        clock: int = now.rows[0][0]
        kept = self.server.target.token_ttl
        return {
            "now": clock,
            "before": clock - micros(kept) if kept else 0,
            "recent": clock - micros(rules.RECHECK_INTERVAL),
            "most": BATCH,
        }

    async def _look(self, title: str, after: str) -> list[Row]:
        """The next batch."""
        (result,) = await self.executor.execute(((title, {**self.values, "after": after}),))
        return result.rows

    async def _change(self, *script: Part) -> int:
        """How many rows the statements have changed; none if others have locked one of them."""
        try:
            return sum(result.amount for result in await self.executor.execute(script))
        except SqlError as error:
            self._check_contended(error)
            return 0

    def _check_contended(self, error: SqlError) -> None:
        """What others have locked is in use: it is left for the next time."""
        if error.state not in self.server.dialect.contended:
            raise error

    async def _each(
        self, title: str, work: Callable[[str], Awaitable[int]], after: str
    ) -> tuple[int, str | None]:
        """Do this for the names of one batch, as many as there is time for."""
        count, names = 0, await self._look(title, after)
        for (name,) in names:
            count += await work(name)
            if self.now() >= self.enough:
                return count, name
        return count, names[-1][0] if names else None

    async def _batch(self, title: str, _: str) -> tuple[int, str | None]:
        """Delete one batch."""
        removed = await self._change((title, self.values))
        return removed, "" if removed else None

    async def _end(self, name: str) -> int:
        """Remove the waiters and holds of a name that have ended, and grant what can be granted."""
        requester = Requester("", False, None)
        lease = Lease(self.server.dialect)
        try:
            await lease.transaction(name, "", requester, rules.expire_and_grant, self.executor)
        except SqlError as error:
            self._check_contended(error)
            return 0
        except Unreadable:
            return 0  # the listings report it
        return 1

    async def _remove_row(self, name: str) -> int:
        return await self._change(("collect row", {"name": name}))

    async def _locks(self, after: str) -> tuple[int, str | None]:
        """End the exclusive holds whose lease has ended, and delete the rows of unused names."""
        ((last, token),) = await self._look("garbage page", after)
        if last is None:
            return 0, None
        count, values = 0, {**self.values, "after": after, "last": last}
        if token is not None:
            # First, so that no name begins again below its last token.
            await self._change(("raise floor", {"token": token}))
            count += await self._change(("collect locks", values))
        return count + await self._change(("collect exclusive holds", values)), last
