"""Requests to the API server, and its errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from leaselock._backends.throttling import Repeater, Throttled
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._backends.document.http import Pool, Reply
    from leaselock._backends.kubernetes.access import Access

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410
TOO_MANY = 429
CREATED = (200, 201)
# One entry of `managedFields` for all clients.
MANAGER = "leaselock"


class Answer(NamedTuple):
    """The reply to a request."""

    status: int
    body: Any
    """As JSON has it."""
    server: str
    date: float | None


class Api:
    """The Lease objects of a namespace."""

    def __init__(self, pool: Pool, access: Access, namespace: str) -> None:
        self.pool = pool
        self.access = access
        self.namespace = namespace
        self.repeater = Repeater(pool.now)
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def __repr__(self) -> str:
        return f"<Api {self.namespace}>"  # without the credentials

    def path(self, path: str, query: Mapping[str, Any]) -> str:
        """A path with its query."""
        text = urlencode(query)
        return f"{self.access.base}{path}{'?' if text else ''}{text}"

    def headers(self, until: float) -> dict[str, str]:
        """The headers of a request that must be answered by *until*."""
        return {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": MANAGER,
            **self.access.credentials.header(until),
        }

    def ask(
        self,
        method: str,
        path: str,
        until: float,
        body: Mapping[str, Any] | None = None,
        *,
        expected: tuple[int, ...] = (),
        **query: Any,
    ) -> Answer:
        """The reply to one request; StoreError unless it is a success or one of *expected*. A
        request that was refused because the token has expired is sent again with a new one, and one
        that was refused because there are too many when the server says so.
        """
        data = b"" if body is None else json.dumps(body).encode()
        where = self.path(path, query)
        return self.repeater.call(
            lambda: self._ask_once(method, where, until, data, expected), until
        )

    def _ask_once(
        self, method: str, where: str, until: float, data: bytes, expected: tuple[int, ...]
    ) -> Answer:
        headers = self.headers(until)
        reply = self.pool.request(method, where, data, headers, until)
        if reply.status == UNAUTHORIZED and self.access.credentials.refused(headers):
            reply = self.pool.request(method, where, data, self.headers(until), until)
        if reply.status not in (*CREATED, *expected):
            raise error_of(reply)
        try:
            return Answer(reply.status, json.loads(reply.body), reply.server, reply.date)
        except ValueError:
            text = f"{reply.server}: it does not reply in JSON: it is no API server"
            raise OutcomeUnknown(text, "misconfigured") from None


def error_of(reply: Reply) -> StoreError:
    """The error that a reply stands for."""
    try:
        message = str(json.loads(reply.body)["message"])
    except (ValueError, LookupError, TypeError):
        message = f"it replies {reply.status}"
    return status_error(reply.server, reply.status, message, reply.retry_after)


def status_error(server: str, status: int, message: str, pause: float = 0.0) -> StoreError:
    """The error that a status of the API stands for."""
    text = f"{server}: {message}"
    if status in (UNAUTHORIZED, FORBIDDEN):
        return NotApplied(text, "denied")
    if status == TOO_MANY:
        again = f", in {pause:g} s" if pause else ""
        return Throttled(f"{text}: the server asks to come again{again}", pause)
    if status == NOT_FOUND:
        return NotApplied(text, "misconfigured")
    if 400 <= status < 500:
        return NotApplied(text, "refused")
    return OutcomeUnknown(text)
