"""Authentication and encryption: SASL and TLS, each on a server that requires it."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.process import HERE, HOST, eventually, free_port
from testkit.servers.tls import Certificates
from testkit.servers.zookeeper import Server

import leaselock
from leaselock._backends.zookeeper.client_settings import target_of
from leaselock._backends.zookeeper.maintenance import _encryption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.ensembles import RestrictedEnsemble

# A server in Java that has just been started may need long for its first handshake.
LIMIT = 60.0
JAAS = """
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="secret" user_bob="other";
};
"""
PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


def started(server: Server) -> Server:
    server.configure([server])
    server.start()
    eventually(lambda: bool(server.role()))
    return server


@pytest.fixture(scope="module")
def sasl() -> Iterator[Server]:
    server = Server(1, HERE, **{"authProvider.1": PROVIDER})
    file = server.folder / "jaas"
    file.write_text(JAAS)
    server.properties["java.security.auth.login.config"] = str(file)
    try:
        yield started(server)
    finally:
        server.remove()


def test_a_user_with_sasl_owns_its_nodes(sasl: Server) -> None:
    place, words = f"{HOST}:{sasl.port}/mine", "sasl=DIGEST-MD5&acl=creator"
    with leaselock.Client(f"zookeeper://ann:secret@{place}?{words}", op_timeout=LIMIT) as client:
        with client.lock("a") as lease:
            assert lease.token > 0
        assert "secret" not in client.url + repr(client)
        findings = client.doctor()
        assert not [finding for finding in findings if finding.level == "fail"]
    stranger = leaselock.Client(f"zookeeper://bob:other@{place}?{words}", op_timeout=LIMIT)
    with stranger, pytest.raises(leaselock.NotApplied, match="NoAuth"):
        stranger.lock("a").acquire(timeout=LIMIT)


def test_sasl_with_asyncio(sasl: Server) -> None:
    async def token() -> int:
        url = f"zookeeper://ann:secret@{HOST}:{sasl.port}/tasks?sasl=DIGEST-MD5"
        async with (
            leaselock.AsyncClient(url, op_timeout=LIMIT) as client,
            client.lock("a") as lease,
        ):
            return lease.token

    assert asyncio.run(token()) > 0


def test_a_wrong_password_is_refused_without_retries(sasl: Server) -> None:
    url = f"zookeeper://ann:wrong-one@{HOST}:{sasl.port}/mine?sasl=DIGEST-MD5"
    client = leaselock.Client(url, op_timeout=LIMIT)
    with client, pytest.raises(leaselock.StoreError) as caught:
        client.lock("a").acquire(timeout=0)
    assert "wrong-one" not in str(caught.value)


@pytest.fixture(scope="module")
def tls() -> Iterator[tuple[Server, int, Certificates]]:
    port = free_port()
    server = Server(1, secureClientPort=port, serverCnxnFactory=NETTY)
    certificates = Certificates(server.folder / "tls")
    whole = server.folder / "tls" / "whole.pem"
    whole.write_bytes(certificates.key.read_bytes() + certificates.cert.read_bytes())
    server.settings |= {
        "ssl.keyStore.location": whole,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificates.ca,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
    }
    try:
        yield started(server), port, certificates
    finally:
        server.remove()


def test_a_lock_over_tls(tls: tuple[Server, int, Certificates]) -> None:
    _, port, certificates = tls
    url = f"zookeeper://{HOST}:{port}/locks?tls=yes&ca={certificates.ca}"
    with leaselock.Client(url, op_timeout=LIMIT) as client, client.lock("a") as lease:
        assert lease.token > 0


def test_doctor_finds_tls_that_is_verified(tls: tuple[Server, int, Certificates]) -> None:
    _, port, certificates = tls
    url = f"zookeeper://{HOST}:{port}/locks?tls=yes&ca={certificates.ca}"
    with leaselock.Client(url, op_timeout=LIMIT) as client:
        found = client.doctor()
    (finding,) = (finding for finding in found if ": TLS" in finding.what)
    assert finding.level == "ok"
    (skipped,) = (finding.what for finding in found if finding.level == "skip")
    assert skipped.endswith("kazoo cannot ask for them over TLS")


@pytest.mark.parametrize("problem", ["verify_certs=False", "check_hostname=False"])
def test_doctor_warns_of_a_client_that_verifies_less(problem: str) -> None:
    """A URL always has the server verified. KazooClient does not look at its name by default."""
    careless = KazooClient("nowhere", use_ssl=True, verify_certs="hostname" in problem)
    (finding,) = _encryption(target_of(careless))
    assert (finding.level, finding.what.rpartition(", ")[2]) == ("warn", problem)
    assert _encryption(target_of(KazooClient("nowhere"))) == []


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_a_certificate_of_an_unknown_authority_is_refused(
    tls: tuple[Server, int, Certificates],
) -> None:
    _, port, certificates = tls
    stranger = Certificates(certificates.ca.parent / "stranger")
    url = f"zookeeper://{HOST}:{port}/locks?tls=yes&ca={stranger.ca}"
    with leaselock.Client(url, op_timeout=1.0) as client, pytest.raises(leaselock.StoreError):
        client.lock("a").acquire(timeout=0)
    # kazoo does not close a socket whose handshake has failed.
    del client
    gc.collect()


def test_the_documented_rights_suffice_for_doctor_and_gc(restricted: RestrictedEnsemble) -> None:
    """Permissions on the root suffice, and other users have none."""
    url = restricted.fresh(timeout=30.0)
    with leaselock.Client(url, op_timeout=LIMIT) as client:
        with client.lock("a") as lease:
            assert [report.name for report in client.locks()] == ["a"]
            assert client.lock("a").holder() is not None
            assert lease.token > 0
        assert not client.setup()
        findings = client.doctor()
        assert not [finding for finding in findings if finding.level == "fail"]
        assert client.gc() == 1
    anonymous = leaselock.Client(url.replace("worker:pw@", ""), op_timeout=LIMIT)
    with anonymous, pytest.raises(leaselock.NotApplied, match="NoAuth"):
        anonymous.lock("a").acquire(timeout=LIMIT)
