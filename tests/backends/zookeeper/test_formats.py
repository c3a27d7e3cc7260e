"""URLs, names, and the data of nodes of this library and of others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaselock._backends.zookeeper.data import read, written
from leaselock._backends.zookeeper.paths import ROOT, decoded, encoded, path_of
from leaselock._backends.zookeeper.queue_order import CURATOR, KAZOO
from leaselock._backends.zookeeper.url import parsed
from leaselock._core.contract.backend import Claim

METADATA = '{"host": "h", "pid": 7, "thread": "T", "label": "ü"}'


def test_a_url_without_options() -> None:
    target = parsed("zookeeper://zoo")
    assert (target.hosts, target.root, target.timeout) == ("zoo", ROOT, 10.0)
    assert (target.mark, target.protocol, target.creator) == (KAZOO, "queue", False)
    assert target.options == {}


def test_a_url_with_all_options() -> None:
    target = parsed(
        "zookeeper://me:s3cret@a:1,[::1]:2/locks/of%20us/?timeout=2.5&names=curator"
        "&protocol=single&tls=yes&ca=/ca.pem&cert=/c.pem&key=/k.pem"
    )
    assert (target.hosts, target.root) == ("a:1,[::1]:2", "/locks/of us")
    assert (target.timeout, target.mark, target.protocol) == (2.5, CURATOR, "single")
    assert target.creator
    assert target.options["auth_data"] == [("digest", "me:s3cret")]
    assert target.options["check_hostname"]
    assert target.options["keyfile"] == "/k.pem"
    assert "s3cret" not in target.shown


def test_forms_of_credentials() -> None:
    digest = parsed("zookeeper://a?auth=digest:me:pw&acl=open")
    assert digest.options == {"auth_data": [("digest", "me:pw")]}
    assert not digest.creator
    sasl = parsed("zookeeper://me:p%40w@a?sasl=DIGEST-MD5")
    words = {"mechanism": "DIGEST-MD5", "username": "me", "password": "p@w"}
    assert sasl.options == {"sasl_options": words}
    assert parsed("zookeeper://a?sasl=GSSAPI").options["sasl_options"] == {"mechanism": "GSSAPI"}


@pytest.mark.parametrize(
    "url",
    [
        *("zookeeper://", "zookeeper:///root", "zookeeper://a?protocol=hash", "zookeeper://a?x=1"),
        *("zookeeper://a?timeout=0", "zookeeper://a?timeout=soon", "zookeeper://a?timeout=nan"),
        *("zookeeper://a?names=zk", "zookeeper://a?acl=all", "zookeeper://a/b/../c?tls=maybe"),
        *("zookeeper://a/b//c", "zookeeper://a/../b", "zookeeper://a?tls=maybe"),
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(url)


@given(st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable()))
def test_a_name_has_one_path_below_the_root(name: str) -> None:
    node = encoded(name)
    assert decoded(node) == name
    assert "/" not in node
    assert node not in (".", "..", "zookeeper")
    assert node.isascii()
    assert path_of("/", name) == f"/{node}"


@pytest.mark.parametrize("node", ["%41", "%C3", "ä", "a%2fb", "%doctor-0000000001", ".", "a/b"])
def test_nodes_that_are_no_locks(node: str) -> None:
    assert decoded(node) is None


def test_written_data_is_read_again() -> None:
    claim = Claim("a", "c:1", "c", 30.0, METADATA, 1234.5678)
    text = read(written(claim, "c-1"), 1.0)
    assert (text.since, text.owner) == (1234.568, "c-1")
    words = json.loads(text.metadata)
    assert (words["host"], words["pid"], words["label"]) == ("h", 7, "ü")


@pytest.mark.parametrize(
    ("data", "host", "label"),
    [
        (b"\x0a\x01\x02\x03", "another program (10.1.2.3)", None),
        (b"host-1", "another program", "host-1"),
        (b"", "another program", None),
        (b"[]", "another program", "[]"),
        (b"\xff\xfe\x00", "another program", "\ufffd\ufffd\x00"),
        (b'{"since": NaN, "id": 1}', "another program", '{"since": NaN, "id": 1}'),
        (b'{"since": "x"}', "another program", '{"since": "x"}'),
    ],
)
def test_data_of_other_programs(data: bytes, host: str, label: Any) -> None:
    text = read(data, 99.0)
    words = json.loads(text.metadata)
    assert (words["host"], words["label"], text.since, text.owner) == (host, label, 99.0, "")


@given(st.binary(max_size=200))
def test_any_data_is_readable(data: bytes) -> None:
    json.loads(read(data, 1.0).metadata)


@pytest.mark.parametrize(
    ("path", "root"),
    [("", ROOT), ("/", "/"), ("//", "/"), ("/a", "/a"), ("/a/b/", "/a/b"), ("/a%20b", "/a b")],
)
def test_path_of_the_url_is_the_root(path: str, root: str) -> None:
    assert parsed(f"zookeeper://host{path}").root == root
    assert path_of(root, "x") == f"{root.rstrip('/')}/x"


def test_patterns_of_the_url() -> None:
    url = "zookeeper://host/locks?extra_lock_patterns="
    assert parsed(f"{url}__mine__,-x-").extra == ("__mine__", "-x-")
    with pytest.raises(ValueError, match=r"\?extra_lock_patterns= must be a list of patterns"):
        parsed(f"{url}(")


def test_a_target_is_shown_without_credentials() -> None:
    target = parsed("zookeeper://me:s3cret@zoo")  # pragma: allowlist secret
    assert repr(target).startswith("<Target zookeeper://")
    assert "s3cret" not in repr(target)
