"""The path of a lock's node for its name, and back. Pure.

The lock *name* is the node ``<root>/<name>``, so Curator's ``InterProcessMutex(client, path)`` and
kazoo's ``client.Lock(path)`` can be given that path. Characters that a path cannot contain, or that
a shell or terminal would interpret, are percent-encoded. Each name has exactly one path, and every
path is below the root.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

ROOT = "/leaselock"
# Follows the path of a semaphore in that of its queue.
QUEUE = "-__lock__"
# Printable ASCII, but for the slash and the percent sign.
PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "/%")
# Names that a path may not contain, and the one that ZooKeeper reserves below "/".
RESERVED = {".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}


def encoded(name: str) -> str:
    """The name of the lock's node below the root."""
    return RESERVED.get(name) or quote(name, safe=PLAIN)


def decoded(node: str) -> str | None:
    """The name of the lock of a node below the root; None for a node that is no lock."""
    try:
        name = unquote(node, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == node else None


def path_of(root: str, name: str) -> str:
    """The path of the lock's node."""
    return f"{root.rstrip('/')}/{encoded(name)}"


def owner_of(claim: str) -> str:
    """The owner in the names of nodes of the claim with that id: unique, and no prefix of another
    claim's.
    """
    return claim.replace(":", "-")
