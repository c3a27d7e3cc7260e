"""etcd 3.6 and later: errors have another form than in older ones (version 2 of its gateway)."""

from __future__ import annotations

import pytest
from testkit.servers.etcd import Etcd
from testkit.servers.process import eventually

import leaselock
from leaselock import NotApplied, OutcomeUnknown

pytestmark = pytest.mark.nightly
every = pytest.mark.parametrize("version", ["etcd-3.5", "etcd-3.6", "etcd-3.7"], indirect=True)


@every
def test_an_expired_login_is_renewed(version: str) -> None:
    with Etcd(auth_token_ttl=1) as server:
        server.require_login()
        server.add_user("ann", "pw", "mine/")
        with leaselock.Client(server.url("mine", "ann:pw")) as client:
            client.lock("a").acquire().release()
            server.restart()  # forgets all tokens
            client.lock("a").acquire().release()
        with leaselock.Client(server.url("other", "ann:pw")) as client:
            with pytest.raises(NotApplied, match="permission denied") as denied:
                client.lock("a").acquire(timeout=1)
            assert denied.value.reason == "denied"


@every
def test_a_full_database_is_an_unknown_outcome_that_says_so(version: str) -> None:
    with Etcd(quota_backend_bytes=2**21) as server, leaselock.Client(server.url("mine")) as client:
        eventually(lambda: server.fill("other/"))
        with pytest.raises(OutcomeUnknown, match="etcdctl alarm disarm"):
            client.lock("a").acquire(timeout=1)
        server.make_room("other/")
        client.lock("a").acquire(timeout=30).release()
