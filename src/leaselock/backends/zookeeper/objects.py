"""A client of kazoo's that the user has: its settings, for one of our own.

It is neither used nor changed: its retries would repeat our requests, and its thread would run
our callbacks behind its owner's.
"""

from __future__ import annotations

from typing import Any

from leaselock.backends.zookeeper.places import ROOT
from leaselock.backends.zookeeper.turn import KAZOO
from leaselock.backends.zookeeper.url import PROTOCOLS, Target

FILES = "use_ssl verify_certs check_hostname certfile keyfile keyfile_password ca".split()


def target_of(client: Any) -> Target:
    """Its servers, its chroot as our root, its session, its credentials."""
    if not hasattr(client, "hosts") or not hasattr(client, "chroot"):
        raise TypeError(f"a store in ZooKeeper is a KazooClient, not a {type(client).__name__}")
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
