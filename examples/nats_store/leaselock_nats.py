"""Locks in a key-value bucket of NATS JetStream: ``nats://host:4222/bucket/prefix``.

An example of a store on the network whose client library, nats-py, is asyncio only: it runs in the
event loop of a `LoopThread`.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import nats
from nats.errors import Error, MaxPayloadError
from nats.js.api import KeyValueConfig
from nats.js.errors import (
    APIError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)

from leaselock import NotApplied, OutcomeUnknown
from leaselock.stores import (
    COMMON_OPTIONS,
    Conflict,
    DocumentStore,
    Finding,
    Found,
    LoopThread,
    Opened,
    Page,
    Stored,
    StoreURL,
    Traits,
    WatchListener,
    document_store,
    open_documents,
    parse,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")
# A request takes about a millisecond. The listener makes reads of waiters rare.
TRAITS = Traits(soonest_poll=0.02, latest_poll=1.0)
BUCKET, PREFIX, PORT = "leaselock", "locks", 4222
# The server's code for "the key has another revision"; the second one since version 2.11.
WRONG_REVISION = (10071, 10164)
# Seconds: for a server that accepts the connection and says nothing; how often a connection
# without traffic is tried; after how long a watch begins again that was lost; and a connection is
# closed that has lost a message.
CONNECT, PING, AGAIN, OLD = 5, 1, 0.5, 10.0
DELETED = ("DEL", "PURGE")


def key_of(prefix: str, name: str) -> str:
    """The key of a lock: letters, digits, '-' and '_' as they are, other bytes as ``=2F``."""
    text = re.sub(rb"[^A-Za-z0-9_-]", lambda found: b"=%02X" % found[0][0], name.encode())
    return f"{prefix}.{text.decode()}"


def name_of(before: str, key: str) -> str:
    """The name of a lock."""
    text = key.removeprefix(before).encode()
    return re.sub(rb"=(..)", lambda found: bytes([int(found[1], 16)]), text).decode()


class Lost(OSError):
    """The connection was lost while a request was under way."""


class Server:
    """The connection to a server, which is made when it is needed: after its loss as well."""

    def __init__(self, url: StoreURL, now: Callable[[], float]) -> None:
        self.hosts = [f"nats://{host.name}:{host.port}" for host in url.hosts(PORT)]
        self.login = {"user": url.user, "password": url.password} if url.user else {}
        self.name = url.authority
        self.loop = LoopThread(now)
        self.attempt: asyncio.Future[Any] | None = None

    async def stream(self) -> tuple[Any, asyncio.Event]:
        """The JetStream of a connection that is open. It never connects again by itself: what it
        sends then would be a request that its caller has given up.
        """
        while True:
            attempt, others = self.attempt, True
            if attempt is None or (attempt.done() and client_of(attempt) is None):
                self.attempt = attempt = asyncio.ensure_future(self.connect())
                others = False
            try:
                # Others may wait for the same attempt: it goes on when this request is given up.
                client, lost = await asyncio.shield(attempt)
                break
            except (Error, OSError, TimeoutError):
                if not others:
                    raise
        # A request lasts as long as its caller waits: `LoopThread.run` cancels it.
        return client.jetstream(timeout=3600.0), lost

    async def connect(self) -> tuple[Any, asyncio.Event]:
        """Make a connection; return an event that is set when it is lost, too."""
        lost = asyncio.Event()

        async def closed() -> None:
            lost.set()

        client = await nats.connect(
            self.hosts,
            allow_reconnect=False,
            connect_timeout=CONNECT,
            ping_interval=PING,
            error_cb=_ignore,  # each request has its own error
            closed_cb=closed,
            **self.login,
        )
        return client, lost

    async def carried_out(self, operation: Callable[[Any], Awaitable[R]]) -> R:
        """Carry out an operation; end with its connection, of which nats-py tells no request."""
        stream, event = await self.stream()
        answer: asyncio.Future[R] = asyncio.ensure_future(operation(stream))
        lost = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((answer, lost), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Lost("the connection was lost")
            return await answer
        finally:
            lost.cancel()
            answer.cancel()

    def run(self, operation: Callable[[Any], Awaitable[R]], until: float) -> R:
        """Connect, and carry out an operation on the JetStream."""
        sent, used = False, None

        def send(stream: Any) -> Awaitable[R]:
            nonlocal sent, used
            sent, used = True, self.attempt
            return operation(stream)

        try:
            return self.loop.run(self.carried_out(send), until)
        except BucketNotFoundError as error:
            text = f"{self.name}: there is no such bucket: run `leaselock setup`"
            raise NotApplied(text, "misconfigured") from error
        except (APIError, MaxPayloadError) as error:
            # The server, or the library before it sends, says that it refused.
            raise NotApplied(f"{self.name}: {error}", "refused") from error
        except (Error, OSError, TimeoutError) as error:
            if used is not None and used is self.attempt:
                # A connection that has lost a message may never answer again: the next request uses
                # another one. Those that are under way keep this one for a while.
                self.attempt = None
                self.loop.start(end(used, OLD))
            said = f"{self.name}: {str(error) or type(error).__name__}"
            if sent:
                raise OutcomeUnknown(said, "unreachable") from error
            raise NotApplied(said, "unreachable") from error

    def close(self) -> None:
        """Close the connection, and end the thread."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            with suppress(TimeoutError):
                self.loop.run(end(attempt), self.loop.now() + CONNECT)
        self.loop.close()

    def after_fork(self) -> None:
        """Forget the connection of the parent."""
        self.attempt = None
        self.loop.after_fork()


def client_of(attempt: asyncio.Future[Any] | None) -> Any:
    """The client of an attempt to connect, if it is connected."""
    if attempt is None or not attempt.done() or attempt.cancelled() or attempt.exception():
        return None
    client, _ = attempt.result()
    return client if client.is_connected else None


async def end(attempt: asyncio.Future[Any], after: float = 0.0) -> None:
    """Close the connection that an attempt makes."""
    with suppress(Error, OSError, TimeoutError):
        client, _ = await attempt
        await asyncio.sleep(after)
        await client.close()


async def _ignore(error: Exception) -> None:
    """Report nothing."""


class Bucket(DocumentStore):
    """The documents of the locks, each under one key."""

    def __init__(self, server: Server, bucket: str, prefix: str, replicas: int) -> None:
        super().__init__(TRAITS)
        self.server, self.bucket, self.prefix, self.replicas = server, bucket, prefix, replicas

    def get(self, name: str, until: float) -> Found:
        """Read: from the leader, since a bucket that `setup` has made permits no direct reads."""

        async def read(stream: Any) -> Found:
            bucket = await stream.key_value(self.bucket)
            try:
                entry = await bucket.get(key_of(self.prefix, name))
            except KeyNotFoundError:
                return Found(None, None)
            return Found(entry.value, entry.revision)

        return self.server.run(read, until)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write, if the key still has this revision."""

        async def write(stream: Any) -> Stored | Conflict:
            bucket, key = await stream.key_value(self.bucket), key_of(self.prefix, name)
            try:
                if version is None:
                    return Stored(await bucket.create(key, value))
                return Stored(await bucket.update(key, value, last=version))
            except KeyWrongLastSequenceError:
                return Conflict(None)

        return self.server.run(write, until)

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Write a marker, which has another revision, if the key still has this one."""

        async def write(stream: Any) -> bool:
            bucket = await stream.key_value(self.bucket)
            try:
                await bucket.delete(key_of(self.prefix, name), last=version)
            except APIError as error:
                if error.err_code not in WRONG_REVISION:
                    raise
                return False
            return True

        return self.server.run(write, until)

    def list(self, position: Any, until: float) -> Page:
        """The names of all keys, with those whose last value is the marker of a deletion:
        ``nats kv compact`` removes them.
        """
        keys = f"$KV.{self.bucket}.{self.prefix}."

        async def read(stream: Any) -> Page:
            try:
                info = await stream.stream_info(f"KV_{self.bucket}", subjects_filter=f"{keys}>")
            except NotFoundError as error:
                raise BucketNotFoundError from error
            return Page([(name_of(keys, key), None) for key in info.state.subjects or ()])

        return self.server.run(read, until)

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Whether the bucket is there, and who has copies of it."""

        async def look(stream: Any) -> tuple[Finding, ...]:
            status = await (await stream.key_value(self.bucket)).status()
            config = status.stream_info.config
            found = [Finding("ok", f"the bucket {self.bucket!r} has {config.num_replicas} copies")]
            if config.allow_direct:
                text = f"the bucket {self.bucket!r} permits direct reads, which may be outdated"
                found.append(Finding("fail", text, "make it anew with `leaselock setup`"))
            return tuple(found)

        return self.server.run(look, until)

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Create the bucket."""

        async def create(stream: Any) -> tuple[str, ...]:
            with suppress(NotFoundError):
                await stream.key_value(self.bucket)
                return ()
            if not dry:
                config = KeyValueConfig(self.bucket, replicas=self.replicas, direct=False)
                await stream.create_key_value(config)
            return (f"create the bucket {self.bucket!r}",)

        return self.server.run(create, until)

    def close(self) -> None:
        """Close the connection."""
        self.server.close()

    def after_fork(self) -> None:
        """Forget the connection of the parent."""
        self.server.after_fork()


class Watcher(WatchListener):
    """Watches the keys of the locks that are waited for, on a connection of its own."""

    def __init__(self, server: Server, bucket: str, prefix: str) -> None:
        super().__init__(server.loop.now)
        self.server, self.bucket, self.prefix = server, bucket, prefix
        self.ends: dict[str, Callable[[], object]] = {}

    def watch(self, name: str, tell: Callable[[Found | None], None]) -> None:
        """Follow the key until `unwatch`."""
        self.ends[name] = self.server.loop.start(self.follow(key_of(self.prefix, name), tell))

    def unwatch(self, name: str) -> None:
        """End it."""
        self.ends.pop(name)()

    async def follow(self, key: str, tell: Callable[[Found | None], None]) -> None:
        """Tell of each value of a key. After a loss of the connection some may have been missed."""
        while True:
            # Whatever has failed: the waiters look for themselves, and meet the error.
            with suppress(Exception):
                async with asyncio.timeout(CONNECT):
                    stream, _ = await self.server.stream()
                    bucket = await stream.key_value(self.bucket)
                    watcher = await bucket.watch(key)
                await self.read(client_of(self.server.attempt), watcher, tell)
            tell(None)
            await asyncio.sleep(AGAIN)

    async def read(self, client: Any, watcher: Any, tell: Callable[[Found | None], None]) -> None:
        """Tell of what the server sends, as long as the connection is open."""
        known = False
        try:
            while client.is_connected:
                with suppress(TimeoutError, nats.errors.TimeoutError):
                    entry = await watcher.updates(timeout=PING)
                    if entry is None:
                        # It has sent what there was, if anything: nats-py says so too early at
                        # times.
                        if not known:
                            tell(None)
                    elif entry.operation in DELETED:
                        tell(Found(None, None))
                    else:
                        tell(Found(entry.value, entry.revision))
                    known = True
        finally:
            with suppress(Error, OSError):
                await watcher.stop()

    def close(self) -> None:
        """End the watches and the connection."""
        super().close()
        self.server.close()

    def after_fork(self) -> None:
        """Forget those of the parent."""
        super().after_fork()
        self.ends.clear()
        self.server.after_fork()


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL."""
    url = parse(str(named))
    segments = url.segments() if url.path.strip("/") else ()
    bucket, prefix, *more = (*segments, *(BUCKET, PREFIX)[len(segments) :])
    if more or not re.fullmatch(r"[A-Za-z0-9_-]+/[A-Za-z0-9_-]+", f"{bucket}/{prefix}"):
        raise ValueError("the URL of a NATS store is nats://host:4222/bucket/prefix")
    replicas = url.option("replicas", whole_number(1, 5), 1)
    store = Bucket(Server(url, now), bucket, prefix, replicas)
    listener = Watcher(Server(url, now), bucket, prefix)
    shown = url.shown(("replicas", *COMMON_OPTIONS))
    return open_documents(STORE, url, store, listener, now, shown=shown)


STORE = document_store("NATS", open_store, ("replicas",), listens=True, title="NATS JetStream")
