"""One prefix of a bucket: an object for each lock, whose ETag is its version."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leaselock._backends.aws import Connection, time_of
from leaselock._backends.document.adapter import (
    Conflict,
    DocumentStore,
    Found,
    Page,
    Stored,
    Traits,
)
from leaselock._backends.s3.keys import key_of, name_of
from leaselock._core.contract.backend import Finding
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leaselock._backends.aws import Settings

# A request takes tens of milliseconds, and is paid for.
TRAITS = Traits(soonest_poll=0.1, latest_poll=1.0, least_poll=0.02)
MISSING = ("NoSuchKey", "404")
CHANGED = (*MISSING, "PreconditionFailed", "412", "ConditionalRequestConflict", "409")
NO_BUCKET = ("NoSuchBucket",)
# No object has this ETag: each has the hash of its content.
NO_ETAG = '"00000000000000000000000000000000"'
SLOW = (
    "an object store answers in tens of milliseconds, and each request is paid for: use it for "
    "locks that are held for seconds and more"
)
IGNORED = "the service ignores the conditions of {}, so it cannot keep locks"


class Bucket(DocumentStore):
    """The objects below *prefix*, which ends with a slash."""

    def __init__(
        self, settings: Settings, bucket: str, prefix: str, shown: str, now: Callable[[], float]
    ) -> None:
        super().__init__(TRAITS)
        self.bucket, self.prefix = bucket, prefix
        path = settings.endpoint is not None
        self.connection = Connection(
            settings,
            now,
            f"the bucket {bucket!r}",
            f"leaselock setup {shown!r}",
            s3={"addressing_style": "path" if path else "auto"},
            # Services other than AWS refuse the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.after_fork()

    def describe(self, name: str) -> tuple[str, str]:
        """The object of a lock, and the command that deletes it."""
        key = self.prefix + key_of(name)
        return f"the object s3://{self.bucket}/{key}", f"aws s3 rm 's3://{self.bucket}/{key}'"

    def get(self, name: str, until: float) -> Found:
        """Read an object: S3 is strongly consistent."""
        reply = self._call("get_object", until, MISSING, Key=self.prefix + key_of(name))
        if "Error" in reply:
            return Found(None, None, time_of(reply))
        return Found(reply["Body"], reply["ETag"], time_of(reply))

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write an object if it still has this ETag."""
        self._check_puts(until)
        unchanged = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        key = self.prefix + key_of(name)
        content: dict[str, Any] = {"Body": value, "ContentType": "application/json"}
        reply = self._call("put_object", until, CHANGED, Key=key, **content, **unchanged)
        if "Error" not in reply:
            return Stored(reply["ETag"], time_of(reply))
        gone = reply["Error"].get("Code") in MISSING
        return Conflict(Found(None, None, time_of(reply)) if gone else None)

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete an object if it still has this ETag."""
        self._check_deletes(until)
        key = self.prefix + key_of(name)
        reply = self._call("delete_object", until, CHANGED, Key=key, IfMatch=version)
        return "Error" not in reply

    def list(self, position: Any, until: float) -> Page:
        """The names of one page."""
        more = {} if position is None else {"ContinuationToken": position}
        reply = self._call("list_objects_v2", until, Prefix=self.prefix, **more)
        keys = [each["Key"].removeprefix(self.prefix) for each in reply.get("Contents", ())]
        names = [(name_of(key), None) for key in keys if not key.startswith("+")]
        return Page(names, reply.get("NextContinuationToken"))

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Examine the bucket, and whether the service compares ETags."""
        reply = self._call("list_objects_v2", until, Prefix=self.prefix, MaxKeys=1)
        findings = [Finding("ok", SLOW), *self.connection.findings(reply, time.time())]
        for check, what in ((self._check_puts, "writes"), (self._check_deletes, "deletions")):
            try:
                check(until)
                findings.append(Finding("ok", f"conditional {what} are refused when they must be"))
            except NotApplied as error:
                findings.append(Finding("fail", str(error), "a service with conditional requests"))
        try:
            versioning = self._call("get_bucket_versioning", until).get("Status")
        except NotApplied as error:
            findings.append(Finding("skip", f"its versioning was not examined ({error})"))
        else:
            if versioning == "Enabled":
                what = f"the bucket {self.bucket} keeps every version of an object: each renewal"
                advice = "a bucket without versioning, or a lifecycle rule for old versions"
                findings.append(Finding("warn", what, advice))
        return tuple(findings)

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Create the bucket if there is none."""
        reply = self._call("list_objects_v2", until, NO_BUCKET, Prefix=self.prefix, MaxKeys=1)
        if "Error" not in reply:
            return ()
        if not dry:
            region = self.connection.client().meta.region_name
            place: dict[str, Any] = {}
            # The first region of AWS must not be named.
            if region not in (None, "us-east-1", "aws-global"):
                place["CreateBucketConfiguration"] = {"LocationConstraint": region}
            self._call("create_bucket", until, ("BucketAlreadyOwnedByYou",), **place)
        return (f"create the bucket {self.bucket}",)

    def wake(self) -> None:
        """End pauses between requests."""
        self.connection.wake()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def after_fork(self) -> None:
        """Forget them."""
        self.connection.after_fork()
        self._puts_checked = self._deletes_checked = False
        self._checking = threading.RLock()

    def _check_puts(self, until: float) -> None:
        """Refuse a service that does not compare ETags, before the first write of this client: two
        clients could hold a lock there. NotApplied.
        """
        if self._puts_checked:
            return
        with self._one_at_a_time(until):
            if self._puts_checked:
                return  # by the thread that this one has waited for
            probe = self._probe()
            self._call("put_object", until, Key=probe, Body=b"{}")
            replies = [
                self._call("put_object", until, CHANGED, Key=probe, Body=b"{}", **condition)
                for condition in ({"IfMatch": NO_ETAG}, {"IfNoneMatch": "*"})
            ]
            self._call("delete_object", until, Key=probe)
            if any("Error" not in reply for reply in replies):
                raise NotApplied(IGNORED.format("writes"), "misconfigured")
            self._puts_checked = True

    def _check_deletes(self, until: float) -> None:
        """The same before the first deletion."""
        if self._deletes_checked:
            return
        with self._one_at_a_time(until):
            if self._deletes_checked:
                return
            probe = self._probe()
            self._call("put_object", until, Key=probe, Body=b"{}")
            reply = self._call("delete_object", until, CHANGED, Key=probe, IfMatch=NO_ETAG)
            if "Error" not in reply:
                raise NotApplied(IGNORED.format("deletions"), "misconfigured")
            self._call("delete_object", until, Key=probe)
            self._deletes_checked = True

    @contextmanager
    def _one_at_a_time(self, until: float) -> Iterator[None]:
        """Let one thread of this client probe the service, for which the others wait."""
        checking = self._checking  # a fork replaces it
        try:
            if not checking.acquire(timeout=max(0.0, until - self.connection.now())):
                raise NotApplied(
                    f"the bucket {self.bucket} is still being examined by another thread of this "
                    "client",
                    "unreachable",
                )
            yield
        finally:
            try:  # noqa: SIM105 - a signal handler could raise after a call
                checking.release()
            except RuntimeError:
                pass  # this thread does not have it

    def _probe(self) -> str:
        """A key that no lock has, and no other client."""
        return f"{self.prefix}+probe-{os.urandom(8).hex()}"

    def _call(
        self, operation: str, until: float, expected: tuple[str, ...] = (), **arguments: object
    ) -> dict[str, Any]:
        return self.connection.call(operation, until, expected, Bucket=self.bucket, **arguments)
