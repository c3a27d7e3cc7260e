"""The JSON gateway of etcd: requests, logging in, and errors.

Every member has the gateway on its client port. It translates JSON to the gRPC interface, so no
library for gRPC is needed. Keys, values and what a transaction compares are base64; integers of 64
bits are decimal strings, and fields that are zero are left out.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._backends.document.http import Pool, Reply
    from leaselock._backends.url import Host

# Codes of gRPC.
UNKNOWN = 2
INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 3, 5, 7, 8
FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 9, 11, 12, 16
# After these the request was not carried out.
REFUSALS = {
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    FAILED_PRECONDITION,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    UNAUTHENTICATED,
}
AUTH_IS_OFF = "authentication is not enabled"
# A user, a role or a permission was changed since the login, or the login has expired.
LOG_IN_AGAIN = ("invalid auth token", "revision of auth store is old")
NO_LOGIN = "user name is empty"
WRONG_LOGIN = ("invalid user id or password", "user name not found")
NO_SPACE = "database space exceeded"
CAUSES = {
    NO_SPACE: (
        "its database has reached its quota: compact and defragment it, or raise "
        "--quota-backend-bytes, then run etcdctl alarm disarm"
    ),
    NO_LOGIN: "it requires a login: write the user and the password before the hosts of the URL",
    "no leader": "the members that run and see each other are not a majority",
}
NO_PATH = "Not Found"
# The gateway of etcd 3.3 and older has other paths.
OLDEST = "3.4"


class Answer(NamedTuple):
    """The reply to a request."""

    body: Any
    """As JSON has it."""
    server: str
    date: float | None
    """The time of the member, in whole seconds."""


def encoded(data: bytes) -> str:
    """Bytes as JSON has them."""
    return b64encode(data).decode("ascii")


class Gateway:
    """Sends requests to one of the members; logs in first if there is a *login*."""

    def __init__(self, pool: Pool, login: tuple[str, str] | None) -> None:
        self.pool = pool
        self.login = login
        self.token: str | None = None
        # The URL has a login, and etcd wants none.
        self.auth_is_off = False
        self.mutex = threading.RLock()

    def __repr__(self) -> str:
        return "<Gateway>"  # without the login

    def post(
        self, path: str, body: Mapping[str, Any], until: float, server: Host | None = None
    ) -> Answer:
        """The reply to one request. A request that was refused because the login has expired is
        sent again after another login.
        """
        headers = self.headers(until)
        reply = self._send(path, body, headers, until, server)
        if reply.status != 200 and self.expired(_message(reply)):
            reply = self._send(path, body, self.headers(until), until, server)
        return self._answer(reply, path)

    def headers(self, until: float) -> dict[str, str]:
        """The headers of a request: its deadline and, after a login, the token."""
        milliseconds = max(1, int(self.pool.time_left(until) * 1000))
        headers = {"Content-Type": "application/json", "Grpc-Timeout": f"{milliseconds}m"}
        if self.login is not None:
            token = self._token(until)
            if token:
                headers["Authorization"] = token
        return headers

    def expired(self, message: str) -> bool:
        """Whether *message* refuses the token. Then it is forgotten. A login may be wanted now that
        was not wanted before.
        """
        refusals = (*LOG_IN_AGAIN, NO_LOGIN) if self.auth_is_off else LOG_IN_AGAIN
        if self.login is None or not any(text in message for text in refusals):
            return False
        self.token, self.auth_is_off = None, False
        return True

    def _token(self, until: float) -> str:
        # One thread logs in, the others wait for its token. An interrupt just after `acquire` finds
        # that this thread has the mutex.
        mutex = self.mutex
        try:
            if not mutex.acquire(timeout=self.pool.time_left(until)):
                raise NotApplied("the login to etcd takes too long", "unreachable")
            token = self.token  # another thread may forget it meanwhile
            if token is None and not self.auth_is_off:
                token = self.token = self._log_in(until)
            return token or ""
        finally:
            try:  # noqa: SIM105 - a signal handler could raise after a call
                mutex.release()
            except RuntimeError:
                pass  # this thread does not have it

    def _log_in(self, until: float) -> str | None:
        assert self.login is not None
        path, (user, password) = "auth/authenticate", self.login
        headers = {"Content-Type": "application/json"}
        reply = self._send(path, {"name": user, "password": password}, headers, until, None)
        if reply.status != 200 and AUTH_IS_OFF in _message(reply):
            self.auth_is_off = True
            return None
        return str(self._answer(reply, path).body["token"])

    def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        until: float,
        server: Host | None,
    ) -> Reply:
        data = json.dumps(body, separators=(",", ":")).encode()
        return self.pool.request("POST", f"/v3/{path}", data, headers, until, server)

    def _answer(self, reply: Reply, path: str) -> Answer:
        if reply.status != 200:
            raise self.error(reply)
        try:
            return Answer(json.loads(reply.body), reply.server, reply.date)
        except ValueError:
            raise OutcomeUnknown(f"{reply.server}: it does not reply in JSON: {path}") from None

    def error(self, reply: Reply) -> StoreError:
        """The error that a reply stands for. After one that a member without a majority gives,
        another member is used.
        """
        error = store_error(reply)
        if isinstance(error, OutcomeUnknown):
            self.pool.use_another(reply.server)
        return error

    def after_fork(self) -> None:
        """Drop the parent's connections, and a mutex that one of its threads may have."""
        self.mutex = threading.RLock()
        self.pool.after_fork()


def _body(reply: Reply) -> dict[str, Any]:
    try:
        body = json.loads(reply.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _message(reply: Reply) -> str:
    return _text(_body(reply))


def _text(body: Mapping[str, Any]) -> str:
    """What an error says. Since etcd 3.6 it has no `error`, which had the same text before."""
    return str(body.get("error") or body.get("message", ""))


def store_error(reply: Reply) -> StoreError:
    """The error that a reply stands for."""
    body = _body(reply)
    # The second is what the gateway of etcd 3.6 and later says of a path that it does not have.
    if not body or _text(body) == NO_PATH:
        return _foreign(reply)
    return status_error(reply.server, int(body.get("code", UNKNOWN)), _text(body))


def status_error(server: str, code: int, text: str) -> StoreError:
    """The error that a status of gRPC stands for."""
    cause = next((advice for part, advice in CAUSES.items() if part in text), "")
    message = f"{server}: {text}{': ' if cause else ''}{cause}"
    if NO_SPACE in text:
        # The write that reaches the quota is carried out, and answered with this error.
        return OutcomeUnknown(message, "refused")
    if code not in REFUSALS:
        return OutcomeUnknown(message)
    lower = text.lower()
    if any(words in lower for words in (*WRONG_LOGIN, *LOG_IN_AGAIN, NO_LOGIN)) or (
        code in (PERMISSION_DENIED, UNAUTHENTICATED)
    ):
        return NotApplied(message, "denied")
    if code == RESOURCE_EXHAUSTED:  # too many requests
        return NotApplied(message, "unreachable")
    return NotApplied(message, "misconfigured" if code == UNIMPLEMENTED else "refused")


def _foreign(reply: Reply) -> StoreError:
    text = reply.body[:100].decode("ascii", "replace").strip()
    if reply.status == 400 and "HTTPS" in text:
        return NotApplied(f"{reply.server}: it uses TLS: write etcds://", "misconfigured")
    if reply.status >= 500 or reply.status in (408, 429):
        return OutcomeUnknown(f"{reply.server}: it replies {reply.status}: {text!r}")
    return NotApplied(
        f"{reply.server}: it replies {reply.status}: {text!r}: "
        f"it is no etcd {OLDEST} or later, or its JSON gateway is disabled",
        "misconfigured",
    )
