"""The watches of one client.

A watch of one object begins with the version that the client knows, so no change is missed. One of
several objects is a watch of all that leaselock has written in the namespace. Bookmarks are not
asked for: a lock that is waited for is renewed, so its version is never too old for long.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leaselock._backends.document.adapter import Found
from leaselock._backends.document.http import Stream
from leaselock._backends.document.watching import News, StreamListener
from leaselock._backends.kubernetes.api import GONE, UNAUTHORIZED, status_error
from leaselock._backends.kubernetes.objects import LABEL, OURS, object_name
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from leaselock._backends.document.watching import OpenStream
    from leaselock._backends.kubernetes.api import Api


class KubernetesListener(StreamListener):
    """Watches the objects of the locks that are waited for. *learn* takes in the object of an
    event, so that the next write needs no read.
    """

    def __init__(self, api: Api, learn: Callable[[str, dict[str, Any]], Found]) -> None:
        super().__init__(api.pool.now)
        self.api = api
        self.learn = learn

    def open(self, versions: Mapping[str, Any], until: float) -> Stream:
        """A watch. Without a version it begins with all objects as they are now."""
        query: dict[str, Any] = {"watch": "1"}
        if len(versions) == 1:
            (name,) = versions
            query["fieldSelector"] = f"metadata.name={object_name(name)}"
        else:
            query["labelSelector"] = f"{LABEL}={OURS}"
        known = [str(version) for version in versions.values() if version is not None]
        if len(known) == len(versions) and all(map(str.isdigit, known)):
            query["resourceVersion"] = str(min(map(int, known)))
        path = self.api.path(self.api.leases, query)
        return Stream(self.api.pool, "GET", path, b"", self.api.headers(until), until)

    def read(self, watched: OpenStream, line: bytes) -> Iterable[News]:
        """What an event says."""
        server = watched.stream.server
        try:
            event = json.loads(line)
            kind, about = event.get("type", "ERROR"), event.get("object", event)
        except (ValueError, AttributeError):
            raise NotApplied(
                f"{server}: it does not reply in JSON to a watch", "misconfigured"
            ) from None
        if kind == "ERROR":
            return self._failed(watched, about)
        names = {object_name(name): name for name in watched.names}
        name = names.get(about["metadata"]["name"])
        if name is None:
            return ()
        if kind == "DELETED":
            return (News(name, Found(None, None)),)
        return (News(name, self.learn(name, about)),)

    def _failed(self, watched: OpenStream, status: Mapping[str, Any]) -> Iterable[News]:
        code = int(status.get("code") or 500)
        if code == GONE:
            # The server does not have the changes since that version any more.
            return [News(name, None, ended=True) for name in watched.names]
        if code == UNAUTHORIZED:
            self.api.access.credentials.refused()
        raise status_error(watched.stream.server, code, str(status.get("message", status)))
