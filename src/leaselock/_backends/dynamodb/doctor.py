"""`leaselock doctor` for DynamoDB: what the description of the table says."""

from __future__ import annotations

from typing import Any

from leaselock._core.contract.backend import Finding

SETUP = "leaselock setup"


def status(table: dict[str, Any], key: str) -> Finding:
    """Whether the table is ready, and has the key that locks need."""
    name = f"the table {table['TableName']}"
    keys = [(each["AttributeName"], each["KeyType"]) for each in table["KeySchema"]]
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    if keys != [(key, "HASH")] or types.get(key) != "S":
        what = f"{name} has another key than {key} (string)"
        return Finding("fail", what, f"a table for locks alone, made by {SETUP}")
    if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
        return Finding("fail", f"{name} is not active: {table['TableStatus']}", "wait for it")
    size = f"about {table.get('ItemCount', 0)} items, {table.get('TableSizeBytes', 0)} bytes"
    return Finding("ok", f"{name} is active: {size}")


def billing(table: dict[str, Any]) -> Finding:
    """Whether its capacity is fixed, so that many waiters may use it up."""
    summary = table.get("BillingModeSummary", {})
    throughput = table.get("ProvisionedThroughput", {})
    writes, reads = throughput.get("WriteCapacityUnits", 0), throughput.get("ReadCapacityUnits", 0)
    if summary.get("BillingMode") == "PAY_PER_REQUEST" or not (writes or reads):
        return Finding("ok", "on-demand capacity")
    what = f"fixed capacity: {writes} write and {reads} read units a second; beyond that, requests "
    what += "are throttled, and leases may be lost because they are not renewed in time"
    return Finding("warn", what, "on-demand capacity (billing mode PAY_PER_REQUEST)")


def regions(table: dict[str, Any]) -> list[Finding]:
    """Whether other regions write to it."""
    replicas = [each.get("RegionName", "?") for each in table.get("Replicas", ())]
    if not replicas:
        return []
    where = f"a global table, replicated to {', '.join(replicas)}"
    if table.get("MultiRegionConsistency") == "STRONG":
        return [Finding("ok", f"{where} with strong consistency")]
    what = f"{where}: clients of different regions do not exclude one another"
    advice = "one region for all clients of a lock, or multi-region strong consistency"
    return [Finding("fail", what, advice)]


def deletion(lifetime: object, attribute: str) -> Finding:
    """Whether DynamoDB deletes items that are unused for long."""
    if not isinstance(lifetime, dict):
        return Finding("skip", f"its time to live was not examined ({lifetime})")
    state, named = lifetime.get("TimeToLiveStatus"), lifetime.get("AttributeName")
    if state in ("ENABLED", "ENABLING") and named == attribute:
        return Finding("ok", f"DynamoDB deletes unused items (time to live, {attribute})")
    if state in ("ENABLED", "ENABLING"):
        what = f"its time to live is by the attribute {named!r}, which locks do not have"
    else:
        what = "its time to live is off: items of names that are used no more stay"
    return Finding("warn", what, f"{SETUP}, or leaselock gc from time to time")
