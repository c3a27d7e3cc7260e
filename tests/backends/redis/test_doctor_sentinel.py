"""doctor asks the sentinels whether they would replace the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis
from testkit.servers.sentinel import NAME, Sentinel, Sentinels

import leaselock

if TYPE_CHECKING:
    from pathlib import Path


def findings(url: str, word: str = "sentinel") -> list[tuple[str, str]]:
    """What doctor says of the sentinels."""
    with leaselock.Client(url, op_timeout=5.0) as client:
        return [(each.level, each.what) for each in client.doctor() if word in each.what]


def test_one_sentinel_without_a_replica_cannot_fail_over(tmp_path: Path) -> None:
    with Redis() as master:
        sentinel = Sentinel(tmp_path / "sentinel", master, ())
        try:
            assert sentinel.process.ready(sentinel.hastened)
            url = f"redis+sentinel://{HOST}:{sentinel.port},{HOST}:1/{NAME}"
            found = findings(url)
        finally:
            sentinel.process.kill()
    text = "\n".join(f"{level} {what}" for level, what in found)
    at = f"the sentinel {HOST}:{sentinel.port}"
    assert f"ok {at}: {NAME} is {HOST}:{master.port}, 0 replicas, 1 sentinels, quorum 2" in text
    assert f"fail {at}: no failover could be decided (NOQUORUM" in text
    assert f"warn {at}: there is no replica" in text
    assert f"warn {at}: 1 sentinels cannot decide" in text
    assert f"warn the sentinel {HOST}:1 does not answer" in text


@pytest.mark.heavy
def test_a_whole_set_is_ok_and_one_that_has_lost_its_majority_fails() -> None:
    with Sentinels() as sentinels:
        assert {level for level, _ in findings(sentinels.url)} == {"ok"}
        first = f"redis+sentinel://{HOST}:{sentinels.sentinels[0].port}/{NAME}"
        assert ("warn", "the URL names 1 of 3 sentinels: programs depend on these alone") in (
            findings(first, "URL names")
        )
        for gone in sentinels.sentinels[1:]:
            gone.process.kill()
        eventually(lambda: "fail" in {level for level, _ in findings(sentinels.url)})
