"""What tests do with an ensemble: fresh roots, for anybody or for a user with few rights."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tests.servers.zookeeper import Ensemble

ROOTS = count()
ADMIN, WORKER = ("admin", "pw"), ("worker", "pw")
# What the page of the store asks for, on the root alone, and nothing else.
RIGHTS = {"create": True, "read": True, "delete": True}
GUARDED = "/guarded"


def fresh(ensemble: Ensemble, **words: object) -> str:
    """The URL of a root where nothing is locked yet."""
    query = "&".join(f"{name}={value}" for name, value in words.items())
    return f"zookeeper://{ensemble.hosts}/test{next(ROOTS)}?{query}"


class Keeper:
    """Owns a folder in which world has no rights, and roots in it on which `WORKER` has few."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.zoo: Any = KazooClient(ensemble.hosts, auth_data=[("digest", ":".join(ADMIN))])
        self.zoo.start()
        self.owner = make_digest_acl(*ADMIN, all=True)
        self.zoo.create(GUARDED, acl=[self.owner])

    def fresh(self, **words: object) -> str:
        """The worker's URL of a root where nothing is locked yet."""
        root = f"{GUARDED}/test{next(ROOTS)}"
        self.zoo.create(root, acl=[self.owner, make_digest_acl(*WORKER, **RIGHTS)])
        query = "&".join(f"{name}={value}" for name, value in words.items())
        return f"zookeeper://{':'.join(WORKER)}@{self.ensemble.hosts}{root}?{query}"

    def close(self) -> None:
        """End the session."""
        self.zoo.stop()
        self.zoo.close()
