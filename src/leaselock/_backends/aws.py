"""What the stores of AWS, and those with the same interface, have in common: the settings of
boto3's client, how it is called, and what its errors mean.

A store never uses a client that the user has: its retries would repeat our requests, and after a
fork the child would share its connections. The settings and the credentials are taken from it.
"""

from __future__ import annotations

import re
import threading
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.libraries import check_version, library
from leaselock._backends.throttling import Repeater, Throttled
from leaselock._backends.url import StoreURL, parse
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.maintenance import clock_finding, tls_finding
from leaselock.errors import NotApplied, OutcomeUnknown, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from leaselock._backends import StoreType

OPTIONS = ("region", "endpoint", "profile", "session_token")
PUBLIC = ("region", "endpoint", "profile")
# Seconds. boto3 before 1.44 cannot limit the time of one request: each may take this long.
CONNECT_TIMEOUT = 1.0
READ_TIMEOUT = 2.0
# An operation may need several requests within one deadline. A request that would begin up to this
# many seconds after the deadline is still sent, because the operation is nearly done.
GRACE = 0.25
# The least time that a request gets.
SHORTEST = 0.15
# How many idle connections are kept: threads that call at the same time open more.
CONNECTIONS = 32
# The longest text of the service in a message. Later lines quote the request, with its session
# token.
LONGEST_TEXT = 300

THROTTLED = {
    *("ProvisionedThroughputExceededException", "ThrottlingException", "Throttling"),
    *("ThrottledException", "RequestLimitExceeded", "TooManyRequestsException", "SlowDown"),
    *("RequestThrottled", "RequestThrottledException", "LimitExceededException"),
}
# Another transaction, or a write in another region, was in the way; a later request may succeed.
BUSY = {
    *("TransactionConflictException", "TransactionInProgressException"),
    *("ReplicatedWriteConflictException", "ResourceInUseException", "OperationAborted"),
}
DENIED = {
    *("AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "Forbidden"),
    *("InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignatureException"),
    *("MissingAuthenticationTokenException", "MissingAuthenticationToken", "InvalidToken"),
    *("ExpiredTokenException", "ExpiredToken", "InvalidClientTokenId", "InvalidAccessKeyId"),
    *("OptInRequired", "NotAuthorized", "KMSAccessDeniedException", "401", "403"),
    *("RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "AllAccessDisabled"),
    "XAdminUserNotFound",
}
# A bucket whose objects must be kept, and cannot be replaced.
OBJECT_LOCK = "object lock"
UNSUPPORTED = {"NotImplemented", "501"}
MISSING = {"ResourceNotFoundException", "NoSuchBucket"}


class Settings(NamedTuple):
    """How to reach a service."""

    service: str
    """As boto3 names it."""
    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    login: tuple[str, str, str | None] | None = None
    """A key's id, its secret and a session token. None: from where boto3 finds them."""
    credentials: Any = None
    """Those of the user's client."""
    config: Any = None
    """The configuration of the user's client."""
    verify: Any = None
    """Its certificates for TLS, or False."""

    def __repr__(self) -> str:
        return f"<Settings {self.service} {self.endpoint or self.region}>"  # without the secrets


def settings_of_url(url: StoreURL, service: str) -> Settings:
    """The settings that a URL names; ValueError for an invalid one."""
    if (url.user is None) != (url.password is None) or url.user == "" or url.password == "":
        raise ValueError(
            "the login in the URL is the id of an access key and its secret: write both or none"
        )
    token = url.options.get("session_token")
    if token is not None and url.user is None:
        raise ValueError("?session_token= belongs to the id of an access key before the '@'")
    profile = url.options.get("profile")
    if profile is not None and url.user is not None:
        raise ValueError("a login and ?profile=: the URL must name one source of credentials")
    for name in OPTIONS:
        if url.options.get(name) == "":
            raise ValueError(f"?{name}= is empty: leave it out, or name one")
    login = None if url.user is None else (url.user, url.password or "", token)
    return Settings(service, url.options.get("region"), _endpoint(url), profile, login)


def _endpoint(url: StoreURL) -> str | None:
    endpoint = url.options.get("endpoint")
    if endpoint is None:
        return None
    if not re.fullmatch(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?/?", endpoint):
        raise ValueError("?endpoint= must be http://host:port or https://host:port, with no login")
    return endpoint


def settings_of_client(client: Any, service: str) -> Settings:
    """The settings of a client of boto3; TypeError if it cannot be used."""
    meta = client.meta
    if meta.service_model.service_name != service:
        raise TypeError(
            f"a client of {meta.service_model.service_name} is not one of {service}, which the "
            "store is in"
        )
    # None of the two has a public accessor.
    signer = getattr(client, "_request_signer", None)
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    return Settings(
        service,
        meta.region_name,
        meta.endpoint_url,
        credentials=getattr(signer, "_credentials", None),
        config=meta.config,
        verify=getattr(session, "_verify", None),
    )


def settings_of(
    named: object,
    kind: StoreType,
    service: str,
    check: Callable[[StoreURL], None],
    of: Callable[[Any], tuple[Any, str, str]],
) -> tuple[Settings, StoreURL]:
    """The settings that a URL or an object of boto3 names, and the URL. *check* is for a URL. *of*
    is for an object: its client, the name of its table or bucket, and a path.
    """
    library("boto3", service)
    if isinstance(named, str):
        url = parse(named)
        kind.protocol_of(url)
        settings = settings_of_url(url, service)
        check(url)
        return settings, url
    client, name, path = of(named)
    settings = settings_of_client(client, service)
    known = {"region": settings.region, "endpoint": settings.endpoint}
    options = {option: value for option, value in known.items() if value}
    return settings, StoreURL(service, None, None, name, path, options, None)


class _Given:
    """What a session of botocore asks for credentials: it has those of the user's client, which
    they refresh by themselves.
    """

    def __init__(self, credentials: object) -> None:
        self.credentials = credentials

    def load_credentials(self) -> object:
        """Return them."""
        return self.credentials


@cache
def _loader() -> Any:
    """What reads the description of a service, which takes long, and then keeps it."""
    return import_module("botocore.session").Session().get_component("data_loader")


class Connection:
    """A client of boto3 for one service; several threads may use it at the same time.

    *where* names the store in messages, *missing* says what to do if it is not there.
    """

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float],
        where: str,
        missing: str,
        **config: object,
    ) -> None:
        self.settings, self.now, self.where, self.missing = settings, now, where, missing
        self.config = config
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the client without using it."""
        self._client: Any = None
        self.made_at = 0.0
        self._opening = threading.Lock()
        self._limits = threading.local()
        self.repeater = Repeater(self.now)

    def wake(self) -> None:
        """End the pauses between requests, until `close`."""
        self.repeater.wake()

    def close(self) -> None:
        """Close its connections."""
        self.repeater.close()
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(
        self, operation: str, until: float, expected: Collection[str] = (), **arguments: object
    ) -> dict[str, Any]:
        """Carry out one operation of the service and return its reply; an error with one of the
        *expected* codes is returned, too, with a key "Error". NotApplied, OutcomeUnknown. A request
        that was throttled is sent again.
        """
        return self.repeater.call(
            lambda: self._call_once(operation, until, expected, arguments), until
        )

    def _call_once(
        self,
        operation: str,
        until: float,
        expected: Collection[str],
        arguments: Mapping[str, object],
    ) -> dict[str, Any]:
        errors = import_module("botocore.exceptions")
        parsers = import_module("botocore.parsers")
        began = self.now()
        try:
            client = self.client()
            # To make the client is no time of the service, and may take long.
            remaining = until - (began if self.made_at >= began else self.now())
            if remaining <= -GRACE:
                raise StoreUnreachable(f"{self.where}: the time for the request was over")
            self._limits.remaining = max(remaining, SHORTEST)
            reply: dict[str, Any] = getattr(client, operation)(**arguments)
            if "Body" in reply:
                reply["Body"] = reply["Body"].read()
            return reply
        except errors.ClientError as error:
            if error.response.get("Error", {}).get("Code") in expected:
                return dict(error.response)
            # Later lines of its text quote the request, with its session token.
            raise self._refusal(error) from None
        except (
            *(errors.HTTPClientError, errors.IncompleteReadError, errors.ChecksumError),
            *(parsers.ResponseParserError, UnicodeDecodeError),  # of a reply
        ) as error:
            raise OutcomeUnknown(f"{self.where}: {_short(error)}", "unreachable") from error
        except errors.SSLError as error:
            # A certificate is examined before anything is sent.
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise NotApplied(f"{self.where}: {_short(error)}", "misconfigured") from error
            raise OutcomeUnknown(f"{self.where}: {_short(error)}", "unreachable") from error
        except errors.ConnectionError as error:
            raise NotApplied(f"{self.where}: {_short(error)}", "unreachable") from error
        except (errors.BotoCoreError, ValueError) as error:
            # A ValueError is about a setting: an endpoint or a region of a wrong form.
            raise self._not_sent(error) from error
        finally:
            self._limits.remaining = None

    def client(self) -> Any:
        """The client; the first call makes it."""
        with self._opening:
            if self._client is None:
                self._client = self._made()
                self.made_at = self.now()
            return self._client

    def _made(self) -> Any:
        settings = self.settings
        boto3 = library("boto3", settings.service)
        core = import_module("botocore.session").Session(profile=settings.profile)
        core.register_component("data_loader", _loader())
        if settings.credentials is not None:
            core.register_component("credential_provider", _Given(settings.credentials))
        config = import_module("botocore.config").Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            max_pool_connections=CONNECTIONS,
            retries={"total_max_attempts": 1, "mode": "standard"},
            **self.config,
        )
        if settings.config is not None:
            config = settings.config.merge(config)
        login = settings.login or (None, None, None)
        session = boto3.session.Session(botocore_session=core, region_name=settings.region)
        client = session.client(
            settings.service,
            endpoint_url=settings.endpoint,
            config=config,
            verify=settings.verify,
            aws_access_key_id=login[0],
            aws_secret_access_key=login[1],
            aws_session_token=login[2],
        )
        client.meta.events.register("before-call", self._limit)
        return client

    def _limit(self, context: dict[str, Any], **_: object) -> None:
        """Limit the time of a request: botocore reads this from its context."""
        remaining = getattr(self._limits, "remaining", None)
        if remaining is not None:
            context["read_timeout"] = remaining

    def _refusal(self, error: Any) -> NotApplied | OutcomeUnknown:
        """What an error that the service has replied means."""
        code = str(error.response.get("Error", {}).get("Code", ""))
        text = f"{self.where}: {_short(error)}"
        if code in THROTTLED or _status(error) == 429:
            return Throttled(f"{self.where}: throttled, more requests than its capacity ({code})")
        if code in BUSY:
            return NotApplied(text, "unreachable")
        if OBJECT_LOCK in text.lower():
            text = f"{text.rstrip('.')}: use a bucket without Object Lock"
            return NotApplied(text, "misconfigured")
        if code in UNSUPPORTED:
            return NotApplied(text, "misconfigured")
        if code in DENIED:
            return NotApplied(text, "denied")
        if code in MISSING:
            return NotApplied(f"{self.where} does not exist: {self.missing}", "misconfigured")
        if _status(error) >= 500:
            return OutcomeUnknown(text, "unreachable")
        return NotApplied(text, "refused")

    def _not_sent(self, error: Exception) -> NotApplied:
        """What an error means that boto3 has raised before it sent the request."""
        name = type(error).__name__
        words = ("Credential", "SSO", "Token", "Login", "Metadata", "MFA")
        if any(word in name for word in words):
            return NotApplied(f"{self.where}: {_short(error)}", "denied")
        if name == "ParamValidationError":
            return NotApplied(f"{self.where}: {_short(error)}", "refused")
        return NotApplied(f"{self.where}: {_short(error)}", "misconfigured")

    def findings(self, reply: dict[str, Any], wall: float) -> list[Finding]:
        """What `doctor` says of the client, of TLS and of the clocks."""
        endpoint = str(self.client().meta.endpoint_url)
        version = library("boto3", self.settings.service).__version__
        findings = [Finding("ok", f"boto3 {version}, {endpoint}")]
        if endpoint.startswith("https://"):
            verified = self.settings.verify is not False
            problem = "" if verified else "the server's certificate is not verified, verify=False"
            findings.append(tls_finding(endpoint, problem, True, "verify=None"))
        theirs = time_of(reply)
        if theirs is None:
            what = f"{endpoint}: its replies do not have its time"
            advice = "dead holds are taken over only by clients that wait for a whole lease"
            findings.append(Finding("warn", what, advice))
        else:
            # The header has whole seconds.
            findings.append(clock_finding(endpoint, theirs + 0.5, wall))
        return findings


def of_client(client: object) -> str:
    """The name of the service of a client or resource of boto3; "" if it is none."""
    check_version("boto3")
    meta: Any = getattr(client, "meta", None)
    inner = getattr(meta, "client", client)
    model = getattr(getattr(inner, "meta", None), "service_model", None)
    return str(getattr(model, "service_name", ""))


def time_of(reply: dict[str, Any]) -> float | None:
    """The time at which the service replied, in Unix time by its clock, in whole seconds."""
    headers = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    parts = parsedate_tz(headers.get("date", ""))
    return None if parts is None else float(mktime_tz(parts))


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _short(error: object) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:LONGEST_TEXT]
