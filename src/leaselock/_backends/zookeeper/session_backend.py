"""What both protocols share: holds that end with a session, and waits that end with a watch.

Invariant 1: whether a hold is valid is read behind a `QuorumBarrier`, which a majority of the
servers answers. A server that is cut off from the majority still answers pings, reads and `sync`,
and these prove nothing.
Invariant 2: a watch event is only a hint to ask again. Every claim asks again after a reconnect,
because events of the time in between are lost.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.contender import Contender
from leaselock._backends.zookeeper.maintenance import Maintenance
from leaselock._backends.zookeeper.paths import QUEUE, path_of
from leaselock._backends.zookeeper.requests import (
    DELETED,
    SESSION_ENDED,
    AwaitEvents,
    Batch,
    CloseSession,
    Connect,
    Create,
    CreateSequential,
    Delete,
    Mailbox,
    Node,
    Operation,
    QuorumBarrier,
    Read,
    SetData,
    Transaction,
)
from leaselock._core.contract.backend import (
    WAKE_ALL,
    Capabilities,
    Claim,
    Lifetime,
    LifetimeSet,
    LockState,
    Watched,
)
from leaselock._core.contract.effects import FOREVER, Call
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock._backends.zookeeper.connection import Connection

# Watches report every release; looking again in between is only a precaution.
RECHECK_INTERVAL = 20.0
# How often a watcher looks at a free lock.
FREE_INTERVAL = 0.25
DELETE_TIMEOUT = 2.0
DELETE_RETRY = 0.5
CLOSE_TIMEOUT = 4.5
CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.001,
    detects_death=False,
    inheritable=False,
    notifies_changes=True,
)
PROOF_TIMEOUT = 1.0
# A majority takes part in the reply to these.
PROOFS = (QuorumBarrier, CreateSequential, Create, Delete, SetData, Transaction)
# While claims wait, the session is proved this often, so that a grant may need no request.
PROOFS_PER_SESSION = 6
ENDED = "the ZooKeeper session of its client has ended"


class RenewalReads:
    """The nodes of a claim that a renewal reads."""

    __slots__ = ("contender", "needed", "paths")

    def __init__(self, contender: Contender | None) -> None:
        self.contender = contender
        self.needed: tuple[str, ...] = ()
        self.paths: list[str] = []
        if contender is not None and contender.node is not None:
            self.needed = contender.needed
            # One of the first two exists: the conversion is one transaction.
            replacement = [contender.alternate] if contender.alternate else []
            self.paths = [contender.node.path, *replacement, *self.needed]


class SessionBackend(Maintenance):
    """The claims of one client by one protocol.

    | a claim | is in |
    |---|---|
    | waits | `contenders` |
    | holds | `contenders` and `leases` |
    | whose lease is over, or that was released while it was converted | `pending_deletes` |
    | released | none |

    `signals` has those that wait for a wake-up, `observed` those that only watch their lock. Leases
    and the background operation are those of `_core.rows.session_leases`, which calls `work`,
    `await_events` and `end_hold`.
    """

    def __init__(self, connection: Connection, root: str, now: Callable[[], float]) -> None:
        capabilities = CAPABILITIES._replace(session_timeout=connection.timeout)
        super().__init__(connection, root, now, capabilities)
        # It receives events while the background operation reads them, and only then.
        self.mailbox = Mailbox()
        self.contenders: dict[str, Contender] = {}
        # The claims that watch each node, in the order in which they began to.
        self.watchers: dict[str, dict[str, None]] = {}
        # The watched node of each claim that only watches its lock.
        self.observed: dict[str, str] = {}
        # Ended holds whose nodes are yet to be deleted, and when that was tried last.
        self.pending_deletes: list[Contender] = []
        self.deletes_tried = 0.0
        self.session = 0
        # When the last proof of the session was requested, and when one was last tried.
        self.last_proof = 0.0
        self.proof_tried = 0.0

    def check_name(self, name: str) -> None:
        """Refuse a name whose node is the queue of a semaphore; warn about one that was probably
        meant to be a path.
        """
        if name.endswith(QUEUE):
            semaphore = name.removesuffix(QUEUE)
            raise ValueError(
                f"{name!r} is the queue of the semaphore {semaphore!r}: use another name"
            )
        if name.startswith("/"):
            path = path_of(self.root, name)
            warnings.warn(
                f"the lock {name!r} is the node {path!r}: names have no leading slash, because the "
                "URL names the folder that they are in",
                UserWarning,
                stacklevel=4,
            )

    async def batch(
        self, until: float, *operations: Operation, session: int = 0
    ) -> Sequence[object]:
        """Send operations together, in that *session* only if it is not 0; return their replies."""
        await self._start_background()
        sent_at = self.now()
        if not self.connection.connected:
            await Call(self.connection, Connect(), until)
        result = await Call(self.connection, Batch(operations, session), until)
        if any(isinstance(operation, PROOFS) for operation in operations):
            self.last_proof = max(self.last_proof, sent_at)
        if result.timeout != self.capabilities.session_timeout:
            self.capabilities = self.capabilities._replace(session_timeout=result.timeout)
        self.session = result.session
        return result.replies

    # --- waiting --------------------------------------------------------------------------------

    def watch(self, contender: Contender, *paths: str, holder: bool = False) -> None:
        """Wake the claim when one of the nodes, which may be the *holder*'s, changes."""
        self._unwatch(contender)
        contender.begin_watch(paths, holder=holder)
        for path in paths:
            self.watchers.setdefault(path, {})[contender.claim.id] = None

    def _unwatch(self, contender: Contender) -> None:
        for path in contender.watched:
            self._stop_watching(path, contender.claim.id)

    def _stop_watching(self, path: str, claim_id: str) -> None:
        claims = self.watchers.get(path, {})
        claims.pop(claim_id, None)
        if not claims:
            self.watchers.pop(path, None)

    async def watch_lock(self, claim: Claim, until: float) -> Watched:
        """The state of the claim's lock, and a watch on its holder's node. The beginning of a hold
        is not notified: a free lock is looked at again soon.
        """
        self.expect_wakeup(claim)
        (state,) = await self.inspect(claim.name, "*", until)
        self._stop_watching(self.observed.pop(claim.id, ""), claim.id)
        if state.held is None:
            return Watched(state, FREE_INTERVAL)
        path = self.observed[claim.id] = state.held.id
        self.watchers.setdefault(path, {})[claim.id] = None
        (node,) = await self.batch(until, Read(path, watch=True))
        return Watched(state, RECHECK_INTERVAL if node else 0.0)

    async def _start_background(self) -> None:
        if not self.background.running:
            self.connection.subscribe(self.mailbox)
            await self.background.start(self._run_background, "session")

    async def _run_background(self) -> None:
        """Handle events and end leases; end the session when the client is closed. If the server
        has refused it, the next request starts this again.
        """
        await self.end_leases()
        self.wake_all()
        try:
            if self.connection.closing:
                await Call(self.connection, CloseSession(), self.now() + CLOSE_TIMEOUT)
        finally:
            self.connection.unsubscribe(self.mailbox)

    async def await_events(self, until: float) -> None:
        """Handle events, and prove the session for waiters."""
        until = min(until, self._next_proof())
        self._handle(await Call(self.connection, AwaitEvents(self.mailbox), until))
        await self._prove()

    def end_wait(self, claim: Claim) -> None:
        """Let the background operation wait again, with an earlier deadline."""
        self.mailbox.put("")

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
            if event.startswith(SESSION_ENDED):
                self._lose_session(int(event.removeprefix(SESSION_ENDED)))
                self.wake_all()
            elif event == WAKE_ALL:
                self.wake_all()
            deleted = event.startswith(DELETED)
            for claim in tuple(self.watchers.get(event.removeprefix(DELETED), ())):
                self._wake(claim, deleted)

    def _lose_session(self, session: int) -> None:
        """Report the loss of all holds of a session that the servers have ended."""
        for contender in tuple(self.contenders.values()):
            node = contender.node
            holds = contender.claim.id in self.leases
            if holds and node is not None and node.session == session:
                self.lose(contender.claim.id, ENDED)

    def _wake(self, claim: str, deleted: bool) -> None:
        contender, signal = self.contenders.get(claim), self.signals.get(claim)
        if contender is not None:
            contender.note_event(deleted=deleted)
        if signal is not None:
            signal.set()

    def holds_by_handoff(self, contender: Contender) -> bool:
        """Whether the claim holds the lock without a request: the holder's node, the only one
        before it that conflicts, was deleted, and its own session is certainly alive.
        """
        deleted = contender.take_freed() and not contender.outdated
        recent = self.now() - self.last_proof < self.capabilities.session_timeout / 4
        node = contender.node
        return deleted and recent and node is not None and node.session == self.session

    def forget(self, claim: Claim) -> None:
        """The claim does not wait any more."""
        self.signals.pop(claim.id, None)
        self._stop_watching(self.observed.pop(claim.id, ""), claim.id)
        contender = self.contenders.get(claim.id)
        if contender is not None:
            self._unwatch(contender)
            if claim.id not in self.leases:
                self.drop(claim)

    def drop(self, claim: Claim) -> None:
        """The claim has ended."""
        self.leases.pop(claim.id, None)
        contender = self.contenders.pop(claim.id, None)
        if contender is not None:
            self._unwatch(contender)

    def wake_all(self) -> None:
        """Let all claims ask again: events may be lost, so that none is next without a request."""
        for contender in self.contenders.values():
            contender.doubt_holder()
        super().wake_all()

    # --- holding --------------------------------------------------------------------------------

    def contender(self, claim: Claim) -> Contender:
        """The contender of the claim. While the node of an ended lease of the same claim is being
        deleted, it enters under another owner.
        """
        ended = [one.attempt for one in self.pending_deletes if one.claim.id == claim.id]
        return self.contenders.setdefault(claim.id, Contender(claim, max(ended, default=-1) + 1))

    def restart(self, contender: Contender) -> None:
        """The node of the claim is gone, so it neither holds nor waits."""
        contender.forget_nodes()
        self.leases.pop(contender.claim.id, None)

    def reenter(self, ended: Contender) -> Contender:
        """The contender of a claim whose lease ended before its grant was received."""
        return self.contenders.setdefault(ended.claim.id, Contender(ended.claim, ended.attempt + 1))

    async def granted(self, contender: Contender) -> None:
        """The claim holds from now on, for its lease at most."""
        self.begin_lease(contender.claim)
        node = contender.node
        if node is not None and contender.mode == "exclusive" and contender.token == node.token:
            for claim in self.watchers.get(node.path, ()):
                # These are claims of this client: it knows that the node they watch holds now,
                # that there was no upgrade since they entered, and that no other node conflicts.
                if claim in self.contenders:
                    self.contenders[claim].trust_holder()
        self.plan(contender.claim)
        await self._start_background()

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Prove the session, and read every node, in one batch for all claims."""
        reads = [RenewalReads(self.contenders.get(claim.id)) for claim in claims]
        operations = [Read(path) for one in reads for path in one.paths]
        _, *nodes = await self.batch(until, QuorumBarrier(self.root), *operations)
        own_nodes = {
            node.path: node
            for node in nodes
            if isinstance(node, Node) and node.session == self.session
        }
        return [
            self._renewed(claim, one, own_nodes) for claim, one in zip(claims, reads, strict=True)
        ]

    def _renewed(self, claim: Claim, reads: RenewalReads, nodes: dict[str, Node]) -> bool | None:
        # The claim may have been released since the batch was sent, or may still wait.
        contender = self.contenders.get(claim.id) if claim.id in self.leases else None
        if contender is None or contender is not reads.contender or contender.node is None:
            return False
        if reads.paths[:1] != [contender.node.path] or contender.conversion.running is not None:
            return None
        node = nodes.get(contender.node.path)
        replaced = contender.alternate in nodes and contender.alternate in reads.paths
        if not replaced and (node is None or node.token != contender.node.token):
            return False
        if any(path in contender.needed and path not in nodes for path in reads.needed):
            return False
        self.extend_lease(claim)
        return True

    def end_hold(self, claim: Claim) -> None:
        """Delete the node of the hold, in the background."""
        contender = self.contenders[claim.id]
        contender.end()
        self.drop(claim)
        if contender.node is not None:
            self.pending_deletes.append(contender)

    async def work(self) -> float:
        """Delete the nodes of ended holds, and repeat that until the server confirms it."""
        if self.pending_deletes and self.now() >= self.deletes_tried + DELETE_RETRY:
            self.deletes_tried = self.now()
            await self._delete_ended()
        return self.deletes_tried + DELETE_RETRY if self.pending_deletes else FOREVER

    async def _delete_ended(self) -> None:
        ended = tuple(self.pending_deletes)
        with contextlib.suppress(StoreError):
            await self.remove(self.now() + DELETE_TIMEOUT, ended)
            self.pending_deletes = [one for one in self.pending_deletes if one not in ended]

    async def remove(self, until: float, ended: Iterable[Contender]) -> None:
        """Delete the nodes of ended holds, if they still exist."""
        await self.delete(until, [path for one in ended for path in one.paths])

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release the claim, or cancel it; say whether it held."""
        raise NotImplementedError

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """The state of one lock, or of all whose names match."""
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

    def after_fork(self) -> None:
        """Forget all claims: after a fork, or in a new event loop."""
        super().after_fork()
        self.reset_leases()
        self.connection.unsubscribe(self.mailbox)
        self.mailbox = Mailbox()
        self.contenders = {}
        self.watchers = {}
        self.observed = {}
        self.pending_deletes = []
