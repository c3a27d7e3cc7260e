"""Fresh roots on a ZooKeeper ensemble, for all users or for one with minimal permissions."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from testkit.servers.zookeeper import Ensemble

ROOTS = count()
ADMIN, WORKER = ("admin", "pw"), ("worker", "pw")
# The permissions that the page of the store asks for, on the root alone.
RIGHTS = {"create": True, "read": True, "delete": True}
GUARDED = "/guarded"


def fresh(ensemble: Ensemble, **words: object) -> str:
    """Return the URL of a new root without locks."""
    query = "&".join(f"{name}={value}" for name, value in words.items())
    return f"zookeeper://{ensemble.hosts}/test{next(ROOTS)}?{query}"


class RestrictedEnsemble:
    """A node without permissions for others, and roots in it on which `WORKER` has `RIGHTS`."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.zoo: Any = KazooClient(ensemble.hosts, auth_data=[("digest", ":".join(ADMIN))])
        self.zoo.start()
        self.owner = make_digest_acl(*ADMIN, all=True)
        self.zoo.create(GUARDED, acl=[self.owner])

    def fresh(self, **words: object) -> str:
        """Return the worker's URL of a new root without locks."""
        root = f"{GUARDED}/test{next(ROOTS)}"
        self.zoo.create(root, acl=[self.owner, make_digest_acl(*WORKER, **RIGHTS)])
        query = "&".join(f"{name}={value}" for name, value in words.items())
        return f"zookeeper://{':'.join(WORKER)}@{self.ensemble.hosts}{root}?{query}"

    def close(self) -> None:
        """End the session."""
        self.zoo.stop()
        self.zoo.close()
