"""A private kube-apiserver on a private etcd: no cluster, no container.

The server is built from its Go module, once, into the cache folder of the user: 4 minutes on two
cores. `kube_apiserver/go.mod` has the lines that `go install` lacks. Users: `ADMIN` may do
everything, `APP` what a Role binds it to.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from testkit.servers import versions
from testkit.servers.costs import starting
from testkit.servers.etcd import Etcd
from testkit.servers.process import HOST, Process, eventually, free_port, program
from testkit.servers.tls import Certificates

VERSION = "1.34.4"
SOURCES = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leaselock"
BUILD_TIMEOUT = 3600.0
ADMIN, APP = "admin-token", "app-token"
GO = "/usr/local/go/bin"
# The packages of Debian and Ubuntu are too old.
GO_FROM = "https://go.dev/dl"
VERBS = ("get", "list", "watch", "create", "update", "delete")


def built(name: str, module: Path, package: str, flags: str = "-s -w") -> Path:
    """A program in Go, which is built if it is not in the cache. One of our own sources is built
    again when they change.
    """
    sources = b"".join(path.read_bytes() for path in sorted(module.glob("*.go")))
    digest = f"-{hashlib.sha256(sources).hexdigest()[:12]}" if sources else ""
    found = CACHE / f"{name}-{VERSION}{digest}"
    if found.exists():
        return found
    go = shutil.which("go") or shutil.which("go", path=GO)
    if go is None:
        pytest.skip(f"no server: {name} {VERSION} has to be built: install Go ({GO_FROM})")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for file in module.iterdir():
            shutil.copy(file, folder)
        made = Path(folder) / "made"
        build = ["build", "-p", "2", "-o", str(made), "-ldflags", flags, package]
        for command in (["mod", "tidy", "-e"], build):
            done = subprocess.run(
                [go, *command],
                cwd=folder,
                check=False,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT,
                env=os.environ | {"GOTOOLCHAIN": "local"},
            )
            if done.returncode != 0:
                pytest.skip(f"no server: {name} {VERSION} cannot be built: {done.stderr[-500:]}")
        made.rename(found)
    return found


def apiserver() -> Path:
    """The program of the server."""
    chosen = versions.program("kube-apiserver")
    if chosen is not None:
        return Path(chosen)
    version = "k8s.io/component-base/version"
    flags = f"-s -w -X {version}.gitVersion=v{VERSION}"
    return built(
        "kube-apiserver", SOURCES / "kube_apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", flags
    )


class Elector:
    """A process that takes part in an election of client-go, and leads for *hold* seconds."""

    def __init__(
        self, server: KubeApiserver, namespace: str, name: str, identity: str, hold: float
    ) -> None:
        command = [str(built("elector", SOURCES / "elector", ".")), str(server.kubeconfig())]
        self.process = Process(
            [*command, namespace, name, identity, f"{hold}s"], server.folder / identity
        )

    def waits(self) -> list[tuple[float, float]]:
        """Each time from its candidacy to the beginning of its term."""
        lines = [line.partition(" ") for line in self.process.output().splitlines()]
        return [
            (float(begun), float(led))
            for (what, _, begun), (then, _, led) in pairwise(lines)
            if (what, then) == ("wait", "lead")
        ]

    def terms(self) -> list[tuple[float, float]]:
        """When it has begun and ceased to lead, in Unix time; the last one may be open."""
        times: list[tuple[float, float]] = []
        for line in self.process.output().splitlines():
            what, _, time = line.partition(" ")
            if what == "lead":
                times.append((float(time), float("inf")))
            elif what == "leave":
                times[-1] = times[-1][0], float(time)
        return times


class KubeApiserver:
    """One API server, and its etcd."""

    def __init__(self) -> None:
        self.program = apiserver()
        self.folder = Path(tempfile.mkdtemp(prefix="kube-"))
        self.port = free_port()
        self.certificates = Certificates(self.folder / "tls")
        self.process: Process | None = None
        self.etcd = Etcd()
        self.namespaces = 0
        self._make_key()
        self.tokens = self.folder / "tokens.csv"
        self.tokens.write_text(f'{ADMIN},admin,admin,"system:masters"\n{APP},app,app\n')
        with starting("kube-apiserver"):
            self.start()

    def _make_key(self) -> None:
        key, public = self.folder / "sa.key", self.folder / "sa.pub"
        openssl = program("openssl")
        for words in (
            ["genrsa", "-out", key, "2048"],
            ["rsa", "-in", key, "-pubout", "-out", public],
        ):
            subprocess.run([openssl, *map(str, words)], check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        options = {
            "etcd-servers": self.etcd.members[0].client_url,
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": self.port,
            "cert-dir": self.folder / "certs",
            "tls-cert-file": self.certificates.cert,
            "tls-private-key-file": self.certificates.key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.folder / "sa.pub",
            "service-account-signing-key-file": self.folder / "sa.key",
            "token-auth-file": self.tokens,
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",
            "disable-admission-plugins": "ServiceAccount",
        }
        command = [str(self.program), *(f"--{name}={value}" for name, value in options.items())]
        self.process = Process(command, self.folder / "log")
        assert self.process.ready(self.is_ready), self.process.output()[-3000:]

    def running(self) -> Process:
        """Its process, which has been started."""
        assert self.process is not None
        return self.process

    def is_ready(self) -> bool:
        """Whether it answers, and the namespace `default` is there."""
        try:
            paths = ("/readyz", "/api/v1/namespaces/default")
            return all(self.ask("GET", path)[0] == 200 for path in paths)
        except OSError:
            return False

    def restart(self) -> None:
        """Kill it, and start it again with its data."""
        self.running().kill()
        self.start()

    def stop(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.process.kill()
        self.etcd.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- speaking to it -------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None, token: str = ADMIN) -> Any:
        """The status and the JSON of a reply."""
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=30, context=context)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        try:
            return reply.status, json.loads(text)
        except ValueError:
            return reply.status, text

    def must(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a reply that must be a success."""
        status, answer = self.ask(method, path, body)
        assert status in (200, 201), answer
        return answer

    def namespace(self, verbs: tuple[str, ...] = VERBS) -> str:
        """A new namespace, in which `APP` may do that with Leases."""
        self.namespaces += 1
        name = f"test{self.namespaces}"
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if verbs:
            self._allow(name, verbs)
        return name

    def _allow(self, name: str, verbs: tuple[str, ...]) -> None:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}
        self.must("POST", f"{rbac}/roles", {"metadata": {"name": "locks"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "locks"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "locks"},
            "subjects": [{"kind": "User", "name": "app", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        self.must("POST", f"{rbac}/rolebindings", binding)
        # The server learns of a new Role by a watch of its own.
        eventually(lambda: all(self._may(name, verb) for verb in verbs))

    def _may(self, namespace: str, verb: str) -> bool:
        """Whether `APP` may do that with Leases."""
        attributes = {"namespace": namespace, "verb": verb, "resource": "leases"}
        spec = {"user": "app", "resourceAttributes": attributes | {"group": "coordination.k8s.io"}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.must("POST", path, {"spec": spec})["status"]["allowed"])

    def lease(self, namespace: str, name: str) -> Any:
        """A Lease object."""
        return self.must(
            "GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        )

    def kubeconfig(
        self, token: str = APP, port: int | None = None, *, verified: bool = True
    ) -> Path:
        """A kubeconfig in JSON for the user with this token."""
        path = self.folder / f"kubeconfig-{token}-{port}-{verified}"
        cluster: dict[str, object] = {"server": f"https://{HOST}:{port or self.port}"}
        if verified:
            cluster["certificate-authority"] = str(self.certificates.ca)
        else:
            cluster["insecure-skip-tls-verify"] = True
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path.write_text(json.dumps(config))
        return path

    def url(self, namespace: str, token: str = APP, **options: object) -> str:
        """How clients reach a namespace."""
        words = {"kubeconfig": self.kubeconfig(token)} | options
        return f"kubernetes://{namespace}?" + "&".join(f"{k}={v}" for k, v in words.items())
