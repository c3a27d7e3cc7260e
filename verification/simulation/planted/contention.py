"""Planted bugs of holders that yield."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.plant import planted

from leaselock._backends.document.waiting import Waiters
from leaselock._backends.memory.store import MemoryRow
from leaselock._backends.redis import backend
from leaselock._backends.sql.lock_row import SqlLockRow
from leaselock._backends.zookeeper.lock_state import lock_state
from leaselock._core.client.contention import Contention
from leaselock._core.client.validity import RENEWALS_PER_LEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from leaselock._backends.document.content import Content
    from leaselock._backends.zookeeper.lock_state import Contending
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Claim, LockState, Watched


@planted("yields")
def end_of_the_first_wait_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """A callback is called for the first waiter that a client ever sees, and for no later one."""
    real = Contention._note
    told: set[str] = set()

    def note(self: Contention, contended: bool) -> None:
        if self.registry.client in told:
            return
        if contended:
            told.add(self.registry.client)
        real(self, contended)

    patch.setattr(Contention, "_note", note)


@planted("yields")
def first_waiter_not_pushed(patch: pytest.MonkeyPatch) -> None:
    """The first waiter is not notified to those who observe the lock."""
    patch.setattr(MemoryRow, "notify_watchers", lambda row: None)


@planted("yields document")
def first_waiter_not_pushed_document(patch: pytest.MonkeyPatch) -> None:
    """A report of the first waiter wakes no claim that watches the lock."""
    real = Waiters.wake_concerned

    def wake(self: Waiters, name: str, before: Content, content: Content, asker: str) -> None:
        real(
            self,
            name,
            before if before.queue else before._replace(queue=content.queue),
            content,
            asker,
        )

    patch.setattr(Waiters, "wake_concerned", wake)


@planted("yields sql")
def first_waiter_not_pushed_sql(patch: pytest.MonkeyPatch) -> None:
    """The tables remember no watcher of a holder."""
    patch.setattr(SqlLockRow, "observe", lambda row, claim: True)


@planted("yields redis")
def queue_not_tracked(patch: pytest.MonkeyPatch) -> None:
    """The server notifies a holder of changes of its lock, and not of its queue."""
    real = backend.RedisBackend.watch_lock

    async def watch_lock(self: backend.RedisBackend, claim: Claim, until: float) -> Watched:
        return await real(self, claim._replace(observes_queue=False), until)

    patch.setattr(backend.RedisBackend, "watch_lock", watch_lock)


@planted("yields", faults={"lost_reply": 0.1})
def silence_ends_it(patch: pytest.MonkeyPatch) -> None:
    """A look that is not answered is the last one."""
    real = Contention._look

    async def look(self: Contention, claim: Claim) -> Any:
        try:
            return await real(self, claim)
        except Exception:
            self.ended.set()
            raise

    patch.setattr(Contention, "_look", look)


@planted("yields zookeeper")
def session_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A holder looks three times in its lease, although its session ends sooner."""

    def interval(self: Contention, hold: Hold) -> float:
        return hold.claim.lease / RENEWALS_PER_LEASE

    patch.setattr(Contention, "_interval", interval)


@planted("yields zookeeper")
def waiters_not_shown(patch: pytest.MonkeyPatch) -> None:
    """The nodes behind the holder's are taken for nodes of other programs."""

    def state(name: str, contending: Sequence[Contending]) -> LockState:
        return lock_state(name, contending)._replace(waiting=())

    patch.setattr("leaselock._backends.zookeeper.queue.lock_state", state)
