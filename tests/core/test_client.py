"""Functions of a client other than acquire and release, in threads and in asyncio."""

from __future__ import annotations

import pytest
from verification.simulation.simulator import Faults, Machine, Simulator

import leaselock
from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.client.claim_registry import ClaimRegistry
from leaselock._core.contract.effects import FOREVER, Wait
from leaselock._core.rows.queue import NodeBackend


def test_a_closing_client_sees_an_end_between_its_step_and_its_wait() -> None:
    """Another thread may take a step there. The client would wait for `op_timeout`."""
    machine = Machine(Simulator(1, {}, Faults()), "m")
    registry = ClaimRegistry(machine, NodeBackend(CAPABILITIES, "store", "ear"), 5.0, None)
    watching = registry.begin_watching()
    closing = registry.close(FOREVER).__await__()
    wait = next(closing)
    registry.end_watching(watching)
    assert isinstance(wait, Wait)
    assert wait.signal.is_set
    with pytest.raises(StopIteration):
        next(closing)


@pytest.mark.parametrize("kind", [leaselock.Client, leaselock.AsyncClient])
def test_a_store_may_warn_about_a_name(kind: type[leaselock.Client]) -> None:
    # Nothing is asked, so no server is needed.
    client = kind("zookeeper://127.0.0.1:1/locks")
    with pytest.warns(UserWarning, match=r"is the node '/locks/%2Fa'.* no leading slash") as seen:
        client.lock("/a")
    assert seen[0].filename == __file__
    client.lock("a/b")
