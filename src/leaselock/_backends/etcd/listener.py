"""The watches of one client.

A watch begins with the revision after the one that the client knows, so no change is missed,
whether it happens before the watch is there or while the connection is lost. If etcd has compacted
that revision, the client reads the document.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any, NoReturn

from leaselock._backends.document.adapter import Found
from leaselock._backends.document.http import Stream
from leaselock._backends.document.watching import News, StreamListener
from leaselock._backends.etcd.gateway import (
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNKNOWN,
    encoded,
    status_error,
)
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from leaselock._backends.document.watching import OpenStream
    from leaselock._backends.etcd.gateway import Gateway

PATH = "/v3/watch"
# How the reason why a watch was cancelled names the codes of gRPC.
CODES = {
    "code = InvalidArgument": INVALID_ARGUMENT,
    "code = PermissionDenied": PERMISSION_DENIED,
    "code = Unauthenticated": UNAUTHENTICATED,
}
# A member that has lost the majority ends the watch, so that another member is asked.
REQUIRE_LEADER = {"Grpc-Metadata-Hasleader": "true"}


class EtcdListener(StreamListener):
    """Watches the keys of the locks that are waited for."""

    def __init__(self, gateway: Gateway, key: Callable[[str], bytes]) -> None:
        super().__init__(gateway.pool.now)
        self.gateway = gateway
        self.key = key

    def open(self, versions: Mapping[str, Any], until: float) -> Stream:
        """One request with a watch for each key; the identifier of a watch is its position."""
        gateway = self.gateway
        headers = gateway.headers(until) | REQUIRE_LEADER
        # The stream may last for ever.
        del headers["Grpc-Timeout"]
        requests = []
        for number, (name, version) in enumerate(versions.items(), 1):
            create: dict[str, Any] = {"key": encoded(self.key(name)), "watch_id": number}
            if version is not None:
                create["start_revision"] = version + 1
            requests.append(json.dumps({"create_request": create}))
        return Stream(gateway.pool, "POST", PATH, "\n".join(requests).encode(), headers, until)

    def read(self, watched: OpenStream, line: bytes) -> Iterable[News]:
        """What a message says."""
        try:
            message = json.loads(line)
            result = message.get("result")
        except (ValueError, AttributeError):
            raise NotApplied(
                f"{watched.stream.server}: it does not reply in JSON to a watch", "misconfigured"
            ) from None
        if result is None:
            self._refuse(watched, message.get("error", ""), message.get("code"))
        number = int(result.get("watch_id", 0))
        # A watch that was refused has the number -1.
        name = watched.names[number - 1] if 0 < number <= len(watched.names) else None
        if result.get("canceled"):
            if name is not None and int(result.get("compact_revision", 0)):
                return (News(name, None, ended=True),)
            self._refuse(watched, result.get("cancel_reason", "a watch was ended"), None)
        return self._events(watched, name, result)

    def _events(
        self, watched: OpenStream, name: str | None, result: Mapping[str, Any]
    ) -> Iterator[News]:
        if name is None:
            return
        if result.get("created"):
            # Without a document there is no revision to begin with: there may be one by now.
            if watched.versions[name] is None:
                yield News(name, None)
            return
        for event in result.get("events", ()):
            pair = event["kv"]
            if event.get("type") == "DELETE":
                yield News(name, Found(None, None))
            else:
                value = b64decode(pair.get("value", ""))
                yield News(name, Found(value, int(pair["mod_revision"])))

    def _refuse(self, watched: OpenStream, error: Any, code: int | None) -> NoReturn:
        text = str(error.get("message", "")) if isinstance(error, dict) else str(error)
        if isinstance(error, dict):
            # The second name is that of etcd 3.6 and later.
            code = error.get("grpc_code", error.get("code", code))
        server, gateway = watched.stream.server, self.gateway
        code = code or next((code for word, code in CODES.items() if word in text), UNKNOWN)
        gateway.expired(text)
        refused = status_error(server, code, text)
        if isinstance(refused, OutcomeUnknown):
            gateway.pool.use_another(server)
        raise refused
