"""One table of DynamoDB: an item for each lock.

The item has the attributes ``id`` (the key: a prefix and the name of the lock), ``doc`` (the
document, as text), ``rev`` (its version, a random word) and, while the lock is not in use,
``expires``, from which on DynamoDB may delete the item.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import time
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
from leaselock._backends.dynamodb.doctor import billing, deletion, regions, status
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.aws import Settings
    from leaselock._core.contract.backend import Finding

KEY, DOCUMENT, REVISION, EXPIRES = "id", "doc", "rev", "expires"
# A read of a free lock costs half as much as a write, or more: do not read all the time.
TRAITS = Traits(soonest_poll=0.05, latest_poll=0.5, least_poll=0.02)
CHANGED = "ConditionalCheckFailedException"
MISSING = "ResourceNotFoundException"
PAGE = 1000
# Seconds between two looks at a table that is being created.
CREATION_POLL = 0.25


class Table(DocumentStore):
    """One table, for the locks whose keys begin with *prefix*."""

    def __init__(
        self, settings: Settings, table: str, prefix: str, shown: str, now: Callable[[], float]
    ) -> None:
        super().__init__(TRAITS)
        self.table, self.prefix, self.now = table, prefix, now
        where = f"the DynamoDB table {table!r}"
        self.connection = Connection(settings, now, where, f"leaselock setup {shown!r}")

    def describe(self, name: str) -> tuple[str, str]:
        """The item of a lock, and the command that deletes it."""
        key = json.dumps(self._key(name))
        remove = f"aws dynamodb delete-item --table-name {self.table} --key {shlex.quote(key)}"
        return f"the item {self.prefix + name!r} of the DynamoDB table {self.table!r}", remove

    def get(self, name: str, until: float) -> Found:
        """Read a document, consistently."""
        reply = self._call("get_item", until, Key=self._key(name), ConsistentRead=True)
        return _found(reply)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write a document if it still has this version."""
        revision = os.urandom(9).hex()
        item = {
            **self._key(name),
            DOCUMENT: {"S": value.decode()},
            REVISION: {"S": revision},
        }
        if unused_after is not None:
            item[EXPIRES] = {"N": str(math.ceil(unused_after))}
        reply = self._if_unchanged("put_item", version, until, Item=item)
        return Conflict(_found(reply)) if "Error" in reply else Stored(revision, time_of(reply))

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete a document if it still has this version."""
        reply = self._if_unchanged("delete_item", version, until, Key=self._key(name))
        return "Error" not in reply

    def list(self, position: Any, until: float) -> Page:
        """One page of a consistent scan, with the documents, which cost nothing more."""
        options: dict[str, Any] = {"ConsistentRead": True, "Limit": PAGE}
        if position is not None:
            options["ExclusiveStartKey"] = position
        if self.prefix:
            options["FilterExpression"] = f"begins_with({KEY}, :prefix)"
            options["ExpressionAttributeValues"] = {":prefix": {"S": self.prefix}}
        reply = self._call("scan", until, **options)
        documents = [
            (item[KEY]["S"].removeprefix(self.prefix), _found({**reply, "Item": item}))
            for item in reply["Items"]
        ]
        return Page(documents, reply.get("LastEvaluatedKey"))

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Examine the table: its state, key, capacity, replicas, and its deletion of old items."""
        reply = self._call("describe_table", until)
        findings = self.connection.findings(reply, time.time())
        table = reply["Table"]
        findings += [status(table, KEY), billing(table), *regions(table)]
        try:
            lifetime = self._call("describe_time_to_live", until)["TimeToLiveDescription"]
        except NotApplied as error:
            lifetime = error
        return (*findings, deletion(lifetime, EXPIRES))

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Create the table, and have DynamoDB delete items that are unused for long."""
        created = f"create the table {self.table}: key {KEY} (string), on-demand capacity"
        enabled = f"have DynamoDB delete items when {EXPIRES} has passed (time to live)"
        reply = self._call("describe_table", until, (MISSING,))
        if "Error" in reply and dry:
            return (created, enabled)
        done = []
        if "Error" in reply:
            self._create(until)
            done.append(created)
        self._wait_until_active(until)
        lifetime = self._call("describe_time_to_live", until)["TimeToLiveDescription"]
        if lifetime["TimeToLiveStatus"] == "DISABLED":
            if not dry:
                wanted = {"Enabled": True, "AttributeName": EXPIRES}
                self._call("update_time_to_live", until, TimeToLiveSpecification=wanted)
            done.append(enabled)
        return tuple(done)

    def _create(self, until: float) -> None:
        # Another one that creates it meanwhile is no error.
        self._call(
            "create_table",
            until,
            ("ResourceInUseException",),
            KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def _wait_until_active(self, until: float) -> None:
        """It takes DynamoDB some seconds to create a table; NotApplied if it takes longer."""
        while True:
            reply = self._call("describe_table", until, (MISSING,))
            if reply.get("Table", {}).get("TableStatus") in ("ACTIVE", "UPDATING"):
                return
            if self.now() + CREATION_POLL >= until or self.connection.repeater.closing.wait(
                CREATION_POLL
            ):
                text = f"DynamoDB still creates the table {self.table!r}: run setup again"
                raise NotApplied(f"{text} in a minute, to enable its time to live", "refused")

    def wake(self) -> None:
        """End the wait for a table, and pauses."""
        self.connection.wake()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def after_fork(self) -> None:
        """Forget them."""
        self.connection.after_fork()

    def _key(self, name: str) -> dict[str, dict[str, str]]:
        return {KEY: {"S": self.prefix + name}}

    def _if_unchanged(
        self, operation: str, version: Any, until: float, **arguments: object
    ) -> dict[str, Any]:
        """Carry out an operation if the item has this version. Where it does not, the reply has an
        error, and the item as it is.
        """
        if version is None:
            arguments["ConditionExpression"] = f"attribute_not_exists({KEY})"
        else:
            arguments["ConditionExpression"] = f"{REVISION} = :version"
            arguments["ExpressionAttributeValues"] = {":version": {"S": version}}
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return self._call(operation, until, (CHANGED,), **arguments)

    def _call(
        self, operation: str, until: float, expected: tuple[str, ...] = (), **arguments: object
    ) -> dict[str, Any]:
        return self.connection.call(operation, until, expected, TableName=self.table, **arguments)


def _found(reply: dict[str, Any]) -> Found:
    """The item of a reply. One that others have put there has no version, and is not overwritten:
    the protocol cannot read it.
    """
    item = reply.get("Item")
    if not item:
        return Found(None, None, time_of(reply))
    document = item.get(DOCUMENT, {}).get("S", "")
    return Found(document.encode(), item.get(REVISION, {}).get("S", ""), time_of(reply))
