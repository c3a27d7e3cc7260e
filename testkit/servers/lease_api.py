"""A small API server for Lease objects, in this process: it checks versions, and sends watches.

It is for tests that must not wait for a kube-apiserver; what it does was compared with one, by the
tests that run on both. It knows no users.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from testkit.servers.process import HOST

LEASES = "/apis/coordination.k8s.io/v1/namespaces/"


class LeaseApi:
    """The server, with an object for each namespace and name."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1
        self.leases: dict[tuple[str, str], dict[str, Any]] = {}
        # What watches send: the version, the kind of event, the object.
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        # Watches of this version and older ones are refused.
        self.compacted = 1
        self.namespaces = 0
        # What the next replies of 429 say for Retry-After.
        self.busy: list[int] = []
        # By how many seconds its clock is ahead.
        self.ahead = 0.0
        # The methods and paths of what was asked, but for watches.
        self.requests: list[tuple[str, str]] = []
        self.folder = tempfile.TemporaryDirectory(prefix="lease-api-")
        self.server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.server.daemon_threads = True
        self.ended = False
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                if "watch" in query:
                    api.watch(self, parts.path, query)
                    return
                api.requests.append((self.command, parts.path))
                again = api.busy.pop(0) if api.busy else None
                if again is None:
                    status, answer = api.answer(self.command, parts.path, query, body)
                else:
                    status, answer = 429, {"message": "too many requests"}
                data = json.dumps(answer).encode()
                self.send_response(status)
                if again:
                    self.send_header("Retry-After", str(again))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def date_time_string(self, timestamp: float | None = None) -> str:
                """The header Date."""
                return super().date_time_string(timestamp or api.time())

            do_GET = do_POST = do_PUT = do_DELETE = _handle

            def log_message(self, *_: object) -> None:
                """Be silent."""

        return Handler

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Any
    ) -> tuple[int, dict[str, Any]]:
        """The status and the body of a reply."""
        if path == "/version":
            return 200, {"gitVersion": "v0.0.0-test"}
        if path.endswith("/selfsubjectaccessreviews"):
            return 201, {"status": {"allowed": True}}
        namespace, _, name = path.removeprefix(LEASES).partition("/leases")
        with self.changed:
            if method == "GET" and not name:
                return self._list(namespace, query)
            name = name.removeprefix("/") or body["metadata"]["name"]
            found = self.leases.get((namespace, name))
            if method == "POST":
                body["metadata"].pop("managedFields", None)
                self._note_manager(body, {}, query)
                return self._create(namespace, name, found, body)
            if found is None:
                return 404, {"message": f'leases "{name}" not found'}
            if method == "GET":
                return 200, found
            metadata = body.get("preconditions") or body["metadata"]
            if metadata.get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return 409, {"message": "the object has been modified"}
            if method == "DELETE":
                del self.leases[namespace, name]
                return 200, self._store("DELETED", namespace, found)
            self._note_manager(body, found, query)
            self.leases[namespace, name] = body
            return 200, self._store("MODIFIED", namespace, body)

    def time(self) -> float:
        """Its clock."""
        return time.time() + self.ahead

    def _note_manager(
        self, lease: dict[str, Any], before: dict[str, Any], query: dict[str, str]
    ) -> None:
        """Note which program wrote, and when."""
        manager = query.get("fieldManager", "unknown")
        managed = (before.get("metadata") or {}).get("managedFields") or ()
        written = datetime.fromtimestamp(int(self.time()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lease["metadata"]["managedFields"] = [
            *(each for each in managed if each["manager"] != manager),
            {"manager": manager, "operation": "Update", "time": written},
        ]

    def _create(
        self, namespace: str, name: str, found: object, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if found is not None:
            return 409, {"message": f'leases "{name}" already exists'}
        self.leases[namespace, name] = body
        return 201, self._store("ADDED", namespace, body)

    def _store(self, kind: str, namespace: str, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stamp = {"namespace": namespace, "resourceVersion": str(self.version)}
        lease["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"} | stamp
        self.events.append((self.version, kind, json.loads(json.dumps(lease))))
        self.changed.notify_all()
        return lease

    def _list(self, namespace: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        found = [lease for _, lease in sorted(self.leases.items()) if self._fits(lease, query)]
        found = [lease for lease in found if lease["metadata"]["namespace"] == namespace]
        first, limit = int(query.get("continue", "0")), int(query.get("limit", "1000"))
        more = str(first + limit) if first + limit < len(found) else ""
        return 200, {"items": found[first : first + limit], "metadata": {"continue": more}}

    def _fits(self, lease: dict[str, Any], query: dict[str, str]) -> bool:
        metadata = lease["metadata"]
        label, _, value = query.get("labelSelector", "").partition("=")
        field = query.get("fieldSelector", "").removeprefix("metadata.name=")
        labels = metadata.get("labels") or {}
        return (not label or labels.get(label) == value) and field in ("", metadata["name"])

    def watch(self, handler: Any, path: str, query: dict[str, str]) -> None:
        """Send events until the server or the client ends."""
        namespace = path.removeprefix(LEASES).partition("/leases")[0]
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for kind, lease in self._watched(namespace, query):
                data = json.dumps({"type": kind, "object": lease}).encode() + b"\n"
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        except OSError:
            return  # the client has ended the watch
        finally:
            handler.close_connection = True

    def _watched(self, namespace: str, query: dict[str, str]) -> Any:
        with self.changed:
            seen = int(query.get("resourceVersion") or self.version)
            first = list(self.leases.values()) if "resourceVersion" not in query else []
            old = seen < self.compacted
        if old:
            yield "ERROR", {"code": 410, "message": "too old resource version"}
            return
        for lease in first:
            if lease["metadata"]["namespace"] == namespace and self._fits(lease, query):
                yield "ADDED", lease
        while not self.ended:
            with self.changed:
                news = [event for event in self.events if event[0] > seen]
                if not news:
                    self.changed.wait(0.2)
            for version, kind, lease in news:
                seen = version
                if lease["metadata"]["namespace"] == namespace and self._fits(lease, query):
                    yield kind, lease

    # --- as KubernetesApiserver has them ---------------------------------------------------------

    def namespace(self) -> str:
        """A new namespace."""
        self.namespaces += 1
        return f"test{self.namespaces}"

    def must(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a reply that must be a success."""
        address = f"http://{HOST}:{self.server.server_port}{path}"
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(address, data, method=method), timeout=60) as reply:
            return json.loads(reply.read())

    def lease(self, namespace: str, name: str) -> Any:
        """A Lease object."""
        return self.must("GET", f"{LEASES}{namespace}/leases/{name}")

    def compact(self) -> None:
        """Refuse watches of all versions up to now."""
        self.compacted = self.version + 1

    def url(self, namespace: str) -> str:
        """How clients reach a namespace."""
        path = Path(self.folder.name) / "kubeconfig"
        cluster = {"server": f"http://{HOST}:{self.server.server_port}"}
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
        }
        path.write_text(json.dumps(config))
        return f"kubernetes://{namespace}?kubeconfig={path}"

    def stop(self) -> None:
        """End it."""
        self.ended = True
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
