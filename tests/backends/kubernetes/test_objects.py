"""Lease objects and documents, and how the API server is found; without a server."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from testkit.servers.process import eventually
from testkit.servers.tls import Certificates
from tests.backends.etcd.etcds import now, soon

from leaselock._backends import open_store
from leaselock._backends.document.content import decoded
from leaselock._backends.kubernetes.access import Access, find
from leaselock._backends.kubernetes.objects import (
    CREATED,
    NAME,
    changed,
    document,
    lock_name,
    object_name,
)
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "token-that-nobody-may-see"
WALL = 1_795_464_741.25


@pytest.mark.parametrize("name", ["a", "order-5", "a.b.c", "x" * 253])
def test_a_valid_name_is_the_name_of_the_object(name: str) -> None:
    assert object_name(name) == name


@pytest.mark.parametrize(
    "name", ["A", "a b", "a/b", "order:5", "-a", "a-", "a..b", "größe", "x" * 254, "leaselock-a"]
)
def test_another_name_is_hashed_and_kept(name: str) -> None:
    hashed = object_name(name)
    assert hashed.startswith("leaselock-")
    assert object_name(hashed) != hashed
    lease = changed(None, name, text(), WALL)
    assert lease["metadata"]["name"] == hashed
    assert lease["metadata"]["annotations"][NAME] == lock_name(lease) == name


def text(*holds: dict[str, Any], n: int = 5) -> bytes:
    """A document with these holds."""
    header = {"v": "1", "n": n, "by": "x.1", "at": WALL, "token": 7, "limit": 0, "lapsed_offer": 0}
    return json.dumps(header | {"holds": holds, "queue": []}).encode()


def hold(beat: int = 5, number: int = 1, **more: object) -> dict[str, Any]:
    metadata = json.dumps({"host": "web-3", "pid": 47})
    fields = {"id": f"c:{number}", "client": "c", "token": 7, "beat": beat, "lasts": 10.5}
    return fields | {"since": WALL, "metadata": metadata} | more


def test_the_spec_says_who_holds_as_client_go_would() -> None:
    lease = changed(None, "a", text(hold()), WALL)
    assert lease["spec"] == {
        "holderIdentity": "web-3_47_c:1",
        "leaseDurationSeconds": 11,
        "acquireTime": "2026-11-23T20:12:21.250000Z",
        "renewTime": "2026-11-23T20:12:21.250000Z",
        "leaseTransitions": 1,
    }
    assert lease["metadata"]["annotations"][CREATED] == "true"
    assert document(lease) == text(hold())


def test_a_renewal_moves_its_time_and_a_waiter_does_not() -> None:
    first = changed(None, "a", text(hold()), WALL)
    waiting = changed(first, "a", text(hold(), n=6), WALL + 1)
    assert waiting["spec"] == first["spec"]
    renewed = changed(waiting, "a", text(hold(7), n=7), WALL + 2)
    assert renewed["spec"]["renewTime"] == "2026-11-23T20:12:23.250000Z"
    assert renewed["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    assert renewed["spec"]["leaseTransitions"] == 1
    other = changed(renewed, "a", text(hold(8, 2), n=8), WALL + 3)
    assert other["spec"]["holderIdentity"] == "web-3_47_c:2"
    assert other["spec"]["leaseTransitions"] == 2
    free = changed(other, "a", text(n=9), WALL + 4)
    assert free["spec"]["holderIdentity"] == ""
    assert free["spec"]["leaseDurationSeconds"] == 1
    assert free["spec"]["leaseTransitions"] == 2
    assert changed(free, "a", text(n=10), WALL + 5)["spec"] == free["spec"]


def test_what_another_program_writes_into_the_spec_is_true() -> None:
    lease = changed(None, "a", text(hold()), WALL)
    taken = lease | {
        "spec": {
            "holderIdentity": "pod-1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-23T20:13:00.000000Z",
            "renewTime": "2026-11-23T20:13:00.000000Z",
            "leaseTransitions": 2,
        }
    }
    content = decoded(document(taken), "a", "", "")
    (foreign,) = content.holds
    assert foreign.lasts == 15.0
    assert foreign.record.token == 0
    assert json.loads(foreign.record.metadata)["host"] == "pod-1"
    assert content.token == 7
    renewed = taken | {"spec": taken["spec"] | {"renewTime": "2026-11-23T20:13:02.000000Z"}}
    (again,) = decoded(document(renewed), "a", "", "").holds
    assert again.record.id == foreign.record.id
    assert again.beat == foreign.beat + 2_000_000
    # A waiter of ours joins: the spec stays, and so does what it says.
    joined = changed(renewed, "a", document(renewed), WALL)
    assert joined["spec"] == renewed["spec"]
    assert document(joined) == document(renewed)
    # Another term of the same identity is another hold.
    term = renewed | {"spec": renewed["spec"] | {"leaseTransitions": 3}}
    assert decoded(document(term), "a", "", "").holds[0].record.id != again.record.id
    released = term | {"spec": term["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}}
    assert decoded(document(released), "a", "", "").holds == ()


def test_a_lease_of_another_program_alone_is_a_document_too() -> None:
    metadata = {"name": "a", "creationTimestamp": "2026-11-23T20:13:00Z"}
    for spec in ({}, {"holderIdentity": None}, {"holderIdentity": "pod-1"}):
        content = decoded(document({"metadata": metadata, "spec": spec}), "a", "", "")
        assert len(content.holds) == bool(spec.get("holderIdentity"))
        assert content.n > 0


def test_a_damaged_document_is_left_to_its_reader() -> None:
    lease = changed(None, "a", text(hold()), WALL)
    lease["metadata"]["annotations"]["leaselock/document"] = "{"
    lease["spec"]["holderIdentity"] = "pod-1"
    assert document(lease) == b"{"


def test_other_metadata_is_kept() -> None:
    lease = changed(None, "a", text(hold()), WALL)
    lease["metadata"] |= {"resourceVersion": "5", "managedFields": [{}], "uid": "u"}
    lease["metadata"]["annotations"]["other"] = "kept"
    lease["metadata"]["labels"]["other"] = "kept"
    made = changed(lease, "a", text(n=6), WALL)["metadata"]
    assert made["annotations"]["other"] == made["labels"]["other"] == "kept"
    assert (made["resourceVersion"], made["uid"]) == ("5", "u")
    assert "managedFields" not in made


# --- where the server is --------------------------------------------------------------------------


def kubeconfig(path: Path, user: dict[str, Any], **cluster: object) -> Path:
    """Write a kubeconfig in YAML."""
    config = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "apps"}},
            {"name": "two", "context": {"cluster": "c", "user": "nobody"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443/base"} | cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def header(access: Access) -> str | None:
    return access.credentials.header(soon()).get("Authorization")


def test_a_kubeconfig_names_server_user_and_namespace(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": SECRET})
    found = find(str(path), None, now)
    assert found[:2] == (("host", 6443), "/base")
    assert found.namespace == "apps"
    assert header(found) == f"Bearer {SECRET}"
    assert SECRET not in repr(found)
    opened = open_store(f"kubernetes:///?kubeconfig={path}", now)
    assert opened.shown.startswith("kubernetes://apps?")
    assert SECRET not in repr(opened)
    for environment in ({"KUBECONFIG": f"/no/such:{path}"}, {"HOME": str(tmp_path / "home")}):
        folder = tmp_path / "home" / ".kube"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config").write_text(path.read_text())
        assert find(None, None, now, environment, tmp_path).namespace == "apps"


def test_several_kubeconfigs_are_one(tmp_path: Path) -> None:
    """As kubectl merges them: the first file that has an entry counts, and paths in an entry are
    relative to its file.
    """
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "token").write_text(f"token {number}")
    first, second = tmp_path / "1" / "config", tmp_path / "2" / "config"
    first.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"tokenFile": "token"}}]}))
    kubeconfig(second, {"tokenFile": "token"})
    for paths, token in (([first, second], "token 1"), ([second, first], "token 2")):
        environment = {"KUBECONFIG": ":".join(map(str, [tmp_path / "missing", *paths]))}
        found = find(None, None, now, environment, tmp_path)
        assert (found.server.name, found.namespace) == ("host", "apps")
        assert header(found) == f"Bearer {token}"
    alone = {"KUBECONFIG": f"{first}:{first}"}
    with pytest.raises(ValueError, match=rf"{first}, {first} has no current-context"):
        find(None, None, now, alone, tmp_path)


def test_tokens_are_read_from_files_and_commands(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    path = kubeconfig(tmp_path / "config", {"tokenFile": "token"})
    found = find(str(path), None, now)
    assert header(found) == f"Bearer {SECRET}"
    (tmp_path / "token").write_text("next")
    assert header(found) == f"Bearer {SECRET}"
    assert found.credentials.refused()
    assert header(found) == "Bearer next"
    code = "import json, os; print(json.dumps({'status': {'token': os.environ['T']}}))"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", code],
        "env": [{"name": "T", "value": SECRET}],
    }
    path = kubeconfig(tmp_path / "config", {"exec": plugin})
    assert header(find(str(path), None, now)) == f"Bearer {SECRET}"
    plugin["args"] = ["-c", f"print({SECRET!r})"]
    path = kubeconfig(tmp_path / "config", {"exec": plugin})
    with pytest.raises(NotApplied, match="has printed no token") as caught:
        header(find(str(path), None, now))
    assert SECRET not in str(caught.value)
    assert caught.value.reason == "denied"


COUNTS = """
import json, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
with open(sys.argv[1], "a") as runs:
    runs.write("x")
    runs.flush()
    number = Path(sys.argv[1]).stat().st_size
while not Path(sys.argv[1] + ".go").exists():
    time.sleep(0.01)
status = {"token": f"token {number}"}
if len(sys.argv) > 2:
    ends = datetime.now(UTC) + timedelta(seconds=float(sys.argv[2]))
    status["expirationTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
print(json.dumps({"status": status}))
"""


class Plugin:
    """A command that notes its runs, and waits until it may print a token."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.runs = folder / "runs"
        self.runs.touch()
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", COUNTS, str(self.runs), *arguments],
        }
        self.ahead = 0.0
        path = kubeconfig(folder / "config", {"exec": plugin})
        self.credentials = find(str(path), None, lambda: now() + self.ahead).credentials

    def go(self) -> None:
        self.runs.with_suffix(".go").touch()

    def count(self) -> int:
        return self.runs.stat().st_size

    def token(self) -> str:
        return self.credentials.header(soon() + self.ahead)["Authorization"]


def test_a_command_that_prints_a_token_outlives_the_request(tmp_path: Path) -> None:
    """One that takes longer than a request gave no token ever: each request ended its own."""
    plugin = Plugin(tmp_path)
    with pytest.raises(NotApplied, match="takes too long") as caught:
        plugin.credentials.header(soon(0.2))
    assert caught.value.reason == "unreachable"
    plugin.go()
    assert plugin.token() == "Bearer token 1"
    assert plugin.count() == 1


def test_a_command_runs_once_for_all_requests(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        tokens = [threads.submit(plugin.token) for _ in range(8)]
        eventually(lambda: plugin.count() == 1)
        plugin.go()
        assert {each.result() for each in tokens} == {"Bearer token 1"}
    plugin.ahead = 86400.0
    assert plugin.token() == "Bearer token 1"
    assert plugin.count() == 1
    # Of several requests that are refused with one token, the first has it read again.
    old = {"Accept": "*", "Authorization": plugin.token()}
    assert plugin.credentials.refused(old)
    assert plugin.token() == "Bearer token 2"
    assert plugin.credentials.refused(old)
    assert plugin.token() == "Bearer token 2"


def test_a_token_is_used_until_it_expires(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, "3600")
    plugin.go()
    assert plugin.token() == "Bearer token 1"
    plugin.ahead = 3500.0
    assert plugin.token() == "Bearer token 1"
    assert plugin.count() == 1
    # Shortly before, it is read again while it is still used.
    plugin.ahead = 3585.0
    assert plugin.token() == "Bearer token 1"
    eventually(lambda: plugin.token() == "Bearer token 2")
    plugin.ahead = 2 * 3600.0
    assert plugin.token() == "Bearer token 3"


def test_a_command_that_fails_leaves_the_token_that_is_valid(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, "3600")
    plugin.go()
    assert plugin.token() == "Bearer token 1"
    plugin.runs.unlink()
    plugin.runs.mkdir()
    plugin.ahead = 3585.0
    assert plugin.token() == "Bearer token 1"
    eventually(lambda: plugin.credentials.reading is None)
    plugin.ahead = 3590.0
    assert plugin.token() == "Bearer token 1"
    assert plugin.credentials.reading is None
    plugin.ahead = 3700.0
    with pytest.raises(NotApplied, match="has printed no token"):
        plugin.token()


def test_a_child_runs_the_command_itself(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    with pytest.raises(NotApplied):
        plugin.credentials.header(soon(0.0))
    plugin.credentials.after_fork()
    plugin.go()
    assert plugin.token() in ("Bearer token 1", "Bearer token 2")


def test_a_certificate_needs_no_token(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    user = {"client-certificate": "tls/cert.pem", "client-key": "tls/key.pem"}
    path = kubeconfig(tmp_path / "config", user, **{"certificate-authority": "tls/ca.pem"})
    found = find(str(path), None, now)
    assert header(found) is None
    assert found.tls is not None
    assert made.cert.exists()
    skipped = kubeconfig(tmp_path / "config", user, **{"insecure-skip-tls-verify": True})
    assert not find(str(skipped), None, now).verified


def test_in_a_pod_its_service_account_is_used(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    (tmp_path / "ca.crt").write_text(made.ca.read_text())
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "namespace").write_text("pods\n")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = find(None, None, now, environment, tmp_path)
    assert (found.server, found.namespace) == (("10.0.0.1", 443), "pods")
    assert header(found) == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kubernetes://apps?kubeconfig=/no/such/file", "there is no kubeconfig /no/such/file"),
        ("kubernetes://apps?context=three&kubeconfig={}", "no context 'three'"),
        ("kubernetes://apps?context=two&kubeconfig={}", "no user 'nobody'"),
        ("kubernetes://Apps?kubeconfig={}", "not the name of a namespace"),
        ("kubernetes://apps/locks?kubeconfig={}", "is kubernetes://namespace"),
        ("kubernetes://apps?timeout=3", "unknown option"),
    ],
)
def test_a_url_that_is_wrong_says_what_to_write(tmp_path: Path, url: str, words: str) -> None:
    path = kubeconfig(tmp_path / "config", {"token": SECRET})
    with pytest.raises(ValueError, match=words) as caught:
        open_store(url.format(path), now)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not valid YAML"),
        ("[]", "not a mapping"),
        ("{}", "no current-context"),
        ('{"current-context": "a", "contexts": [{}]}', "not valid: KeyError"),
    ],
)
def test_a_kubeconfig_that_is_wrong_is_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        find(str(path), None, now)


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {}, **{"proxy-url": "http://proxy"})
    with pytest.raises(ValueError, match="proxy-url, which is not supported"):
        find(str(path), None, now)
