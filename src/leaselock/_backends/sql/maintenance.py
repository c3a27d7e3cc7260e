"""Maintenance of the database: doctor, setup, garbage collection.

The tables are created by `Client.setup` and `leaselock setup` only. Creating them takes rights that
a program which only locks does not need, and belongs to the migrations (hazard J19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.doctor import examine
from leaselock._backends.sql.lease import Lease
from leaselock._backends.sql.lock_row import Requester, micros
from leaselock._backends.sql.server_info import check_version
from leaselock._backends.sql.statements import SqlError
from leaselock._core import rules
from leaselock._core.backend import CollectGarbage, Doctor, Setup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.server_info import ServerInfo
    from leaselock._backends.sql.statements import Part, Row, Value

MAINTENANCE = (Doctor, Setup, CollectGarbage)
# How many rows `gc` looks at, or removes, at once.
BATCH = 1000


async def maintain(
    request: object, server: ServerInfo, executor: Executor, now: Callable[[], float]
) -> object:
    """Carry out a maintenance request."""
    if isinstance(request, Setup):
        return await _set_up(server, request.dry, executor)
    if isinstance(request, CollectGarbage):
        return await Sweep(server, executor, now).run()
    return await examine(server, executor)


async def _set_up(server: ServerInfo, dry: bool, executor: Executor) -> tuple[str, ...]:
    found = await _version(server, executor)
    if found is not None:
        check_version(server, found)
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


class Sweep:
    """One run of `gc`. It goes through the tables in batches, so that no statement locks many rows
    for long, and each batch has the time limit of one request.
    """

    def __init__(self, server: ServerInfo, executor: Executor, now: Callable[[], float]) -> None:
        self.server = server
        self.executor = executor
        self.now = now
        self.patience = executor.until - now()
        self.values: dict[str, Value] = {}

    async def run(self) -> int:
        """Remove what has expired, and the rows of names that were not locked for the token TTL."""
        (now,) = await self.executor.execute(("now",))
        clock: int = now.rows[0][0]
        kept = self.server.target.token_ttl
        self.values = {
            "now": clock,
            "before": clock - micros(kept) if kept else 0,
            "recent": clock - micros(rules.RECHECK_INTERVAL),
            "most": BATCH,
        }
        count = await self._each("ended names", self._end)
        for title in ("collect wakeups", "collect sessions"):
            while removed := await self._change((title, self.values)):
                count += removed
        return count + await self._each("unused rows", self._remove_row) + await self._locks()

    async def _look(self, title: str, after: str) -> list[Row]:
        """The next batch. It has a time limit of its own."""
        self.executor.until = self.now() + self.patience
        (result,) = await self.executor.execute(((title, {**self.values, "after": after}),))
        return result.rows

    async def _change(self, *script: Part) -> int:
        """How many rows the statements have changed; none if others have locked one of them."""
        self.executor.until = self.now() + self.patience
        try:
            return sum(result.amount for result in await self.executor.execute(script))
        except SqlError as error:
            self._check_contended(error)
            return 0

    def _check_contended(self, error: SqlError) -> None:
        """What others have locked is in use: it is left for the next time."""
        if error.state not in self.server.dialect.contended:
            raise error

    async def _each(self, title: str, work: Callable[[str], Awaitable[int]]) -> int:
        """Do this for each name of a list."""
        count, after = 0, ""
        while names := await self._look(title, after):
            for (after,) in names:
                count += await work(after)
        return count

    async def _end(self, name: str) -> int:
        """Remove the waiters and holds of a name that have ended, and grant what can be granted."""
        self.executor.until = self.now() + self.patience
        requester = Requester("", False, None)
        lease = Lease(self.server.dialect)
        try:
            await lease.transaction(name, "", requester, rules.expire_and_grant, self.executor)
        except SqlError as error:
            self._check_contended(error)
            return 0
        return 1

    async def _remove_row(self, name: str) -> int:
        return await self._change(("collect row", {"name": name}))

    async def _locks(self) -> int:
        """End the exclusive holds whose lease has ended, and delete the rows of unused names."""
        count, after = 0, ""
        while True:
            ((last, token),) = await self._look("garbage page", after)
            if last is None:
                return count
            values = {**self.values, "after": after, "last": last}
            if token is not None:
                # First, so that no name begins again below its last token.
                await self._change(("raise floor", {"token": token}))
                count += await self._change(("collect locks", values))
            count += await self._change(("collect exclusive holds", values))
            after = last
