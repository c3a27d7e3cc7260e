"""What both protocols share: holds that end with a session, and waits that end with a watch.

Invariant 1: a node exists no longer than the lease of its claim. If nothing renews the lease, the
maintenance process deletes the node; if the client cannot, its session ends.
Invariant 2: whether a hold is valid is read behind a `QuorumBarrier`, which a majority of the
servers answers. A server that is cut off from the majority still answers pings, reads and `sync`,
and these prove nothing.
Invariant 3: a watch event is only a hint to ask again. Every claim asks again after a reconnect,
because events of the time in between are lost.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.contender import Contender
from leaselock.backends.zookeeper.maintenance import Maintenance
from leaselock.backends.zookeeper.requests import (
    DELETED,
    AwaitEvents,
    Batch,
    CloseSession,
    Connect,
    Create,
    CreateSequential,
    Delete,
    Node,
    Operation,
    QuorumBarrier,
    Read,
)
from leaselock.core.backend import WAKE_ALL, Capabilities, Claim, Lifetime, LifetimeSet
from leaselock.core.effects import FOREVER, Call, Signal, Wait
from leaselock.core.singleton_process import Background
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock.backends.zookeeper.connection import Connection

# Watches report every release; looking again in between is only a precaution.
RECHECK_INTERVAL = 20.0
DELETE_TIMEOUT = 2.0
DELETE_RETRY = 0.5
CLOSE_TIMEOUT = 4.5
CLOCK_MARGIN = 0.001
PROOF_TIMEOUT = 1.0
# A majority takes part in the reply to these.
PROOFS = (QuorumBarrier, CreateSequential, Create, Delete)
# While claims wait, the session is proved this often, so that a grant may need no request.
PROOFS_PER_SESSION = 6


class SessionBackend(Maintenance):
    """The claims of one client by one protocol."""

    def __init__(self, connection: Connection, root: str, now: Callable[[], float]) -> None:
        super().__init__(connection, root, now)
        self.capabilities = Capabilities(
            0.0, CLOCK_MARGIN, life=False, inheritable=False, session_timeout=connection.timeout
        )
        self.mailbox = connection.subscribe()
        self.contenders: dict[str, Contender] = {}
        self.signals: dict[str, Signal] = {}
        self.watchers: dict[str, set[str]] = {}
        self.maintenance = Background()
        self.next_maintenance = FOREVER
        # Ended holds whose nodes are yet to be deleted, and when that was tried last.
        self.pending_deletes: list[Contender] = []
        self.deletes_tried = 0.0
        self.session = 0
        # When the last proof of the session was requested, and when one was last tried.
        self.last_proof = 0.0
        self.proof_tried = 0.0

    async def batch(
        self, until: float, *operations: Operation, session: int = 0
    ) -> Sequence[object]:
        """Send operations together, in that *session* only if it is not 0; return their replies."""
        await self._maintained()
        asked = self.now()
        if not self.connection.connected:
            await Call(self.connection, Connect(), until)
        result = await Call(self.connection, Batch(operations, session), until)
        if any(isinstance(operation, PROOFS) for operation in operations):
            self.last_proof = max(self.last_proof, asked)
        if result.timeout != self.capabilities.session_timeout:
            self.capabilities = self.capabilities._replace(session_timeout=result.timeout)
        self.session = result.session
        return result.replies

    # --- waiting --------------------------------------------------------------------------------

    def prepare_wait(self, claim: Claim) -> None:
        """Reset the claim's signal before its request is sent, so that no event is missed."""
        signal = self.signals.get(claim.id)
        if signal is None:
            self.signals[claim.id] = Signal()
        else:
            signal.clear()

    def watch(self, contender: Contender, path: str, holder: bool = False) -> None:
        """Wake the claim when the node *path*, which may be the *holder*'s, changes."""
        self._unwatch(contender)
        contender.watched = path
        contender.watches_holder, contender.holder_deleted = holder, False
        self.watchers.setdefault(path, set()).add(contender.claim.id)

    def _unwatch(self, contender: Contender) -> None:
        claims = self.watchers.get(contender.watched, set())
        claims.discard(contender.claim.id)
        if not claims:
            self.watchers.pop(contender.watched, None)

    async def _maintained(self) -> None:
        if not self.maintenance.running:
            await self.maintenance.start(self._maintain, "session")

    async def _maintain(self) -> None:
        """Handle events; prove the session for waiters; delete the nodes of ended leases; and end
        the session when the client is closed.
        """
        try:
            while True:
                self.next_maintenance = self._next_delete()
                until = min(self.next_maintenance, self._next_proof())
                self._handle(await Call(self.connection, AwaitEvents(self.mailbox), until))
                await self._prove()
                await self._end_leases()
        except StoreError:
            # The client was closed, or the server refuses it. The next request starts this again.
            self.wake_all()
        if self.connection.interrupted:
            await Call(self.connection, CloseSession(), self.now() + CLOSE_TIMEOUT)

    def _next_proof(self) -> float:
        if not self.signals:
            return FOREVER
        return self.proof_tried + self.capabilities.session_timeout / PROOFS_PER_SESSION

    async def _prove(self) -> None:
        if self.now() < self._next_proof():
            return
        self.proof_tried = self.now()
        with contextlib.suppress(OutcomeUnknown):
            await self.batch(self.proof_tried + PROOF_TIMEOUT, QuorumBarrier(self.root))

    def _handle(self, events: Iterable[str]) -> None:
        for event in events:
            if event == WAKE_ALL:
                self.wake_all()
            deleted = event.startswith(DELETED)
            for claim in tuple(self.watchers.get(event.removeprefix(DELETED), ())):
                self._wake(claim, deleted)

    def _wake(self, claim: str, deleted: bool) -> None:
        contender, signal = self.contenders.get(claim), self.signals.get(claim)
        if contender is not None:
            contender.holder_deleted = deleted and contender.watches_holder
        if signal is not None:
            signal.set()

    def is_next(self, contender: Contender) -> bool:
        """Whether the claim holds the lock without a request: the holder's node, directly before
        its own, was deleted, and its own session is certainly alive.
        """
        deleted, contender.holder_deleted = contender.holder_deleted, False
        recent = self.now() - self.last_proof < self.capabilities.session_timeout / 4
        node = contender.node
        return deleted and recent and node is not None and node.session == self.session

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait until the claim should ask again."""
        await Wait(self.signals[claim.id], until)

    def forget(self, claim: Claim) -> None:
        """The claim does not wait any more."""
        self.signals.pop(claim.id, None)
        contender = self.contenders.get(claim.id)
        if contender is not None:
            self._unwatch(contender)
            if contender.lease_end == FOREVER:
                self.drop(claim)

    def drop(self, claim: Claim) -> None:
        """The claim has ended."""
        contender = self.contenders.pop(claim.id, None)
        if contender is not None:
            self._unwatch(contender)

    def wake_all(self) -> None:
        """Let every waiting claim ask again."""
        for signal in self.signals.values():
            signal.set()

    # --- holding --------------------------------------------------------------------------------

    def contender(self, claim: Claim) -> Contender:
        """The contender of the claim. While the node of an ended lease of the same claim is being
        deleted, it enters under another owner.
        """
        ended = [one.attempt for one in self.pending_deletes if one.claim.id == claim.id]
        return self.contenders.setdefault(claim.id, Contender(claim, max(ended, default=-1) + 1))

    def reenter(self, ended: Contender) -> Contender:
        """The contender of a claim whose lease ended before its grant was received."""
        return self.contenders.setdefault(ended.claim.id, Contender(ended.claim, ended.attempt + 1))

    async def granted(self, contender: Contender) -> None:
        """The claim holds from now on, for its lease at most."""
        contender.lease_end = self.now() + contender.claim.lease
        for claim in self.watchers.get(contender.node.path if contender.node else "", ()):
            # These are claims of this client, so it knows that the node they watch holds now.
            self.contenders[claim].watches_holder = True
        if contender.lease_end < self.next_maintenance:
            self.next_maintenance = contender.lease_end
            # The maintenance process waits with a later deadline: let it wait anew.
            self.mailbox.put("")
        await self._maintained()

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool]:
        """Prove the session, and read every node, in one batch for all claims."""
        contenders = [self.contenders.get(claim.id) for claim in claims]
        reads = [Read(one.node.path) for one in contenders if one is not None and one.node]
        _, *nodes = await self.batch(until, QuorumBarrier(self.root), *reads)
        valid = {
            node.token for node in nodes if isinstance(node, Node) and node.session == self.session
        }
        return [self._renewed(claim, valid) for claim in claims]

    def _renewed(self, claim: Claim, valid: set[int]) -> bool:
        # The claim may have been released since the batch was sent.
        contender = self.contenders.get(claim.id)
        if contender is None or contender.node is None or contender.node.token not in valid:
            return False
        contender.lease_end = max(contender.lease_end, self.now() + claim.lease)
        return True

    async def _end_leases(self) -> None:
        """End the leases that are over. They do not hold from this step on, whichever replies are
        still to come.
        """
        for contender in [c for c in self.contenders.values() if c.lease_end <= self.now()]:
            contender.ended = True
            self.drop(contender.claim)
            if contender.node is not None:
                self.pending_deletes.append(contender)
        if self.pending_deletes and self.now() >= self.deletes_tried + DELETE_RETRY:
            self.deletes_tried = self.now()
            await self._delete_ended()

    async def _delete_ended(self) -> None:
        ended = tuple(self.pending_deletes)
        with contextlib.suppress(StoreError):
            await self.remove(self.now() + DELETE_TIMEOUT, ended)
            self.pending_deletes = [one for one in self.pending_deletes if one not in ended]

    async def remove(self, until: float, ended: Iterable[Contender]) -> None:
        """Delete the nodes of ended holds, if they still exist."""
        await self.delete(until, [one.node.path for one in ended if one.node])

    def _next_delete(self) -> float:
        ends = min((one.lease_end for one in self.contenders.values()), default=FOREVER)
        return min(ends, self.deletes_tried + DELETE_RETRY) if self.pending_deletes else ends

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release the claim, or cancel it; say whether it held."""
        raise NotImplementedError

    async def delete(self, until: float, paths: Sequence[str]) -> int:
        """Delete nodes; return how many of them existed."""
        if not paths:
            return 0
        return sum(map(bool, await self.batch(until, *map(Delete, paths))))

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """No hold outlives its session."""
        raise NotApplied(
            f"the hold on {claim.name!r} cannot be detached: in ZooKeeper it ends with the "
            "session of its client"
        )

    def reset_identity(self) -> None:
        """Forget all claims: after a fork, or in a new event loop."""
        self.connection.unsubscribe(self.mailbox)
        self.mailbox = self.connection.subscribe()
        self.contenders = {}
        self.signals = {}
        self.watchers = {}
        self.pending_deletes = []
        self.maintenance = Background()
        self.next_maintenance = FOREVER
