"""Where a lock is: the path of a name, and the name of a path. Pure.

The lock *name* is the node ``<root>/<name>``, so that Curator's ``InterProcessMutex(client, path)``
and kazoo's ``client.Lock(path)`` can be given that very path. What a path cannot have, and what a
shell or a terminal would trip over, is written in percent: each name has exactly one path, and no
name leaves the root.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

ROOT = "/leaselock"
# Printable ASCII, but for the slash and the percent sign.
PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "/%")
# What a path may not have as a part, and what ZooKeeper keeps for itself below "/".
RESERVED = {".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}


def encoded(name: str) -> str:
    """The node of a lock, below the root."""
    return RESERVED.get(name) or quote(name, safe=PLAIN)


def decoded(node: str) -> str | None:
    """The lock that a node below the root is; None when no name is written so."""
    try:
        name = unquote(node, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == node else None


def path_of(root: str, name: str) -> str:
    """The path of a lock."""
    return f"{root.rstrip('/')}/{encoded(name)}"


def owner_of(holder: str) -> str:
    """What names one claim in the names of nodes; unique, and of no other claim a part."""
    return holder.replace(":", "-")
