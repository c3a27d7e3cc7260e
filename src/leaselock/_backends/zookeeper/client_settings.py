"""The settings of a kazoo client that the user has, for a client of our own.

The user's client is neither used nor changed. Its retries would repeat our requests, and its
handler would run our callbacks in the user's threads. Two of its settings have no public accessor.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from leaselock._backends.zookeeper.paths import ROOT
from leaselock._backends.zookeeper.queue_order import KAZOO
from leaselock._backends.zookeeper.url import PROTOCOLS, Target

FILES = "use_ssl verify_certs check_hostname certfile keyfile keyfile_password ca".split()


# The handlers of kazoo that run callbacks in greenlets: the module whose function says whether
# threads were replaced, that function, its argument, and what replaces them.
GREENLETS = {
    "sequential_gevent_handler": (
        *("gevent.monkey", "is_module_patched", "threading"),
        "gevent.monkey.patch_all()",
    ),
    "sequential_eventlet_handler": (
        *("eventlet.patcher", "is_monkey_patched", "thread"),
        "eventlet.monkey_patch()",
    ),
}


def target_of(client: Any) -> Target:
    """Its servers, its chroot as the root, its session timeout and its credentials."""
    if not hasattr(client, "hosts") or not hasattr(client, "chroot"):
        raise TypeError(
            f"a ZooKeeper store is opened with a KazooClient, not with a {type(client).__name__}"
        )
    _check_handler(client.handler)
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


def _check_handler(handler: Any) -> None:
    """TypeError if the user's program runs greenlets without patched threads: one that waits for a
    lock would stop all of them.
    """
    module, function, argument, patch = GREENLETS.get(
        getattr(handler, "name", ""), ("", "", "", "")
    )
    if module and not getattr(import_module(module), function)(argument):
        raise TypeError(
            f"this KazooClient has a {type(handler).__name__}, but threads are not patched: call "
            f"{patch} first (monkey patching), for a greenlet that waits would stop all others"
        )
