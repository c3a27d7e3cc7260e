"""The conformance suite on a real kube-apiserver, by a user with only the rights of the example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from tests.conformance.matrix import configuration, name, run

from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.kubernetes import KubeApiserver


def store_on(kubernetes: KubeApiserver) -> Store:
    """A store with a new namespace for each scenario."""
    return Store(
        "kubernetes",
        lambda folder: kubernetes.url(kubernetes.namespace()),
        protocols=("document",),
        confirm_within=CONFIRM_WITHIN,
        reply_factor=3.0,
        min_hold=True,
        sharing=True,
        updates=True,
        permits=True,
        max_waiters=50,
    )


@pytest.mark.parametrize(("scenario", "driver"), configuration("kubernetes", one_in=4), ids=name)
def test_kubernetes(
    scenario: Scenario, driver: str, kubernetes: KubeApiserver, tmp_path: Path
) -> None:
    run(scenario, store_on(kubernetes), driver, tmp_path)
