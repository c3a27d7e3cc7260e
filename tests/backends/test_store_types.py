"""What the stores of this package say of themselves: schemes, protocols, capabilities."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from leaselock._backends import OBJECTS, SCHEMES, built_in, open_store, stores_with
from leaselock._backends.redlock.store import STORE
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Capabilities

URLS = {
    "etcd": "etcd://host/",
    "kubernetes": "kubernetes://default",
    "dynamodb": "dynamodb://table?region=eu-west-1",
    "s3": "s3://bucket?region=eu-west-1",
}
EMPTY_KUBECONFIG = """
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
current-context: a
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_protocol_can_do_what_its_store_says(
    scheme: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("store")
    config = folder / "config"
    config.write_text(EMPTY_KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(config))
    ((store, _),) = [(store, known) for store, known in built_in() if scheme in known]
    url = URLS.get(scheme, f"{scheme}://host/")
    if scheme in ("sqlite", "unix"):
        url = f"{scheme}://{folder}/store"
    elif "sentinel" in scheme:
        url = f"{scheme}://host/name"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = open_store(url, lambda: 0.0)
        for protocol, said in store.protocols.items():
            assert comparable(opened.backend(protocol).capabilities) == said, protocol
    assert opened.protocol == next(iter(store.protocols))
    with pytest.raises(ValueError, match=f"{store.name} store has no protocol 'other'"):
        opened.backend("other")


def comparable(found: Capabilities) -> Capabilities:
    """Without what depends on the URL of a store whose holds end with a session."""
    return found._replace(session_timeout=FOREVER)


def test_a_redlock_can_do_what_it_says() -> None:
    opened = open_store([f"redis://{host}" for host in "abc"], lambda: 0.0)
    found = opened.backend("redlock").capabilities
    (said,) = STORE.protocols.values()
    assert found._replace(clock_drift=0.0, clock_margin=0.0) == said


def test_every_client_of_a_table_is_of_a_store_with_a_scheme() -> None:
    assert set(OBJECTS.values()) <= set(SCHEMES.values())


def test_messages_name_the_stores_by_their_capabilities() -> None:
    assert stores_with("shared").startswith("memory, SQLite, Redis by hash, ZooKeeper by queue, ")
    assert "MySQL by lease and row" in stores_with("shared")
    assert "ZooKeeper by queue with kazoo's names" in stores_with("permits")
    assert "PostgreSQL by lease" in stores_with("min_hold")
    assert "Redis by hash without replicas" in stores_with("min_hold")
