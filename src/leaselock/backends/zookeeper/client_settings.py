"""The settings of a kazoo client that the user has, for a client of our own.

The user's client is neither used nor changed. Its retries would repeat our requests, and its
handler would run our callbacks in the user's threads. Two of its settings have no public accessor.
"""

from __future__ import annotations

from typing import Any

from leaselock.backends.zookeeper.paths import ROOT
from leaselock.backends.zookeeper.queue_order import KAZOO
from leaselock.backends.zookeeper.url import PROTOCOLS, Target

FILES = "use_ssl verify_certs check_hostname certfile keyfile keyfile_password ca".split()


def target_of(client: Any) -> Target:
    """Its servers, its chroot as the root, its session timeout and its credentials."""
    if not hasattr(client, "hosts") or not hasattr(client, "chroot"):
        raise TypeError(
            f"a ZooKeeper store is opened with a KazooClient, not with a {type(client).__name__}"
        )
    hosts = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts
    )
    options = {name: getattr(client, name) for name in FILES}
    options["randomize_hosts"] = client.randomize_hosts
    sasl = client._connection.sasl_options
    known = {"auth_data": list(client.auth_data), "sasl_options": sasl}
    options |= {name: value for name, value in known.items() if value}
    root = client.chroot or ROOT
    return Target(
        hosts,
        root,
        client._session_timeout / 1000.0,
        KAZOO,
        PROTOCOLS[0],
        f"zookeeper://{hosts}{client.chroot}",
        options,
        bool(client.auth_data or sasl),
    )
