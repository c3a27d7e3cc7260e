"""Planted bugs of ZooKeeper."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._backends.zookeeper import queue, session_backend
from leaselock._backends.zookeeper.contender import Contender
from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.requests import Connect, Read
from leaselock._backends.zookeeper.session_backend import SessionBackend
from leaselock._core.client import validity
from leaselock._core.contract.backend import WAKE_ALL
from leaselock._core.contract.effects import FOREVER, Call
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from leaselock._core.contract.backend import Claim, Grant


# Servers are separated from their leader often and for long, and nothing else happens.
PARTED = {"zoo.AWAY": 15.0, "zoo.UNREST": (0.5,), "zoo.LAGS": (0.001,), "zoo.LOSSES": (0.0,)}


@planted("zookeeper")
def any_predecessor_is_holder(patch: pytest.MonkeyPatch) -> None:
    """The deletion of any predecessor counts as a release."""
    watch = SessionBackend.watch

    def careless(
        self: SessionBackend, contender: Contender, *paths: str, holder: bool = False
    ) -> None:
        watch(self, contender, *paths, holder=True)

    patch.setattr(SessionBackend, "watch", careless)


@planted(
    "zookeeper ensemble",
    faults={"freeze": 0.05, "freeze_mean": 3.0, "slow": 0.05, "delay": 0.02},
    settings={"zoo.UNREST": (1.0,), "zoo.AWAY": 2.0},
)
def connection_is_proof(patch: pytest.MonkeyPatch) -> None:
    """A new connection counts as a proof of the session (hazard I1)."""
    handle = SessionBackend._handle

    def hopeful(self: SessionBackend, events: Iterable[str]) -> None:
        received = tuple(events)
        if WAKE_ALL in received:
            self.last_proof = self.now()
        handle(self, received)

    patch.setattr(SessionBackend, "_handle", hopeful)


@planted("zookeeper", faults={"freeze": 0.05, "freeze_mean": 1.0})
def late_grant_accepted(patch: pytest.MonkeyPatch) -> None:
    """A grant whose reply comes after the end of its lease is accepted."""
    freeze_at_grants(patch)
    patch.setattr(Contender, "has_ended", lambda self: False)


def freeze_at_grants(patch: pytest.MonkeyPatch) -> None:
    """Add a call after each grant, which does no harm by itself."""
    granted = SessionBackend.granted

    async def calling(self: SessionBackend, contender: Contender) -> None:
        await granted(self, contender)
        with contextlib.suppress(StoreError):
            await Call(self.connection, Connect(), self.now() + 1.0)

    patch.setattr(SessionBackend, "granted", calling)


# No scenario is calm.
@planted("zookeeper ensemble", faults={"freeze": 0.0}, settings=PARTED)
def renewed_by_read(patch: pytest.MonkeyPatch) -> None:
    """A renewal is a read, which a server without its leader answers (hazard I1)."""
    patch.setattr(session_backend, "QuorumBarrier", Read)


@planted("zookeeper ensemble")
def search_without_barrier(patch: pytest.MonkeyPatch) -> None:
    """The node of a lost request is searched for on a server that may lag (hazard I10)."""
    patch.setattr(queue, "QuorumBarrier", Read)


OF_ONE_LEADER = 2**32


@planted("zookeeper ensemble")
def token_without_epoch(patch: pytest.MonkeyPatch) -> None:
    """The token is the transaction counter of a leader, without its epoch (hazard I5)."""
    grant = QueueBackend._grant

    async def short(self: QueueBackend, contender: Contender, proof: float = FOREVER) -> Grant:
        whole = await grant(self, contender, proof)
        return whole._replace(token=whole.token % OF_ONE_LEADER)

    patch.setattr(QueueBackend, "_grant", short)


@planted("zookeeper")
def uncertain_node_not_deleted(patch: pytest.MonkeyPatch) -> None:
    """A node whose creation was not confirmed is not searched for (hazard I2)."""
    release = QueueBackend.release

    async def forgetful(self: QueueBackend, claim: Claim, *, tombstone: bool, until: float) -> bool:
        contender = self.contenders.get(claim.id)
        if contender is None or contender.node is None:
            return False
        return await release(self, claim, tombstone=False, until=until)

    patch.setattr(QueueBackend, "release", forgetful)


@planted("zookeeper")
def valid_for_whole_session(patch: pytest.MonkeyPatch) -> None:
    """A proof is considered valid for more than the whole session timeout (hazard I1)."""
    patch.setattr(validity, "PROVEN_PART", 1.2)
