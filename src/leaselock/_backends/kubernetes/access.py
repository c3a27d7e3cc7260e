"""Where the API server is, and what to log in with: in a pod, or by a kubeconfig.

A kubeconfig is YAML, and JSON is YAML, too: a file in JSON needs no library.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from leaselock._backends import library
from leaselock._backends.url import Host
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds after which a token is read again: kubelet replaces those of pods every hour or so.
READ_AGAIN = 60.0
# Seconds that a command which logs in may take.
COMMAND_TIMEOUT = 30.0
UNSUPPORTED = ("tls-server-name", "proxy-url")


class Credentials:
    """The token of a user; none for a user with a certificate."""

    def __init__(self, read: Callable[[float], str] | None, now: Callable[[], float]) -> None:
        # Its argument is the time in seconds that it may take.
        self.read = read
        self.now = now
        self.token = ""
        self.expires = 0.0

    def __repr__(self) -> str:
        return "<Credentials>"  # without the token

    def header(self, until: float) -> dict[str, str]:
        """The header of a request that must be answered by *until*."""
        if self.read is None:
            return {}
        if not self.token or self.now() >= self.expires:
            self.token = self.read(until - self.now())
            self.expires = self.now() + READ_AGAIN
        return {"Authorization": f"Bearer {self.token}"}

    def refused(self) -> bool:
        """Read the token again before the next request; return whether it may be another one."""
        self.expires = 0.0
        return self.read is not None


class Access(NamedTuple):
    """An API server."""

    server: Host
    base: str
    """The path before those of the API."""
    tls: ssl.SSLContext | None
    namespace: str
    """The one that is used where the URL of the store names none."""
    credentials: Credentials
    verified: bool = True
    """Whether the server is verified."""


def find(
    kubeconfig: str | None,
    context: str | None,
    now: Callable[[], float],
    environment: Mapping[str, str] = os.environ,
    folder: Path = SERVICE_ACCOUNT,
) -> Access:
    """The API server of the pod that this program runs in, unless a kubeconfig or a context is
    named; else that of the kubeconfig. ValueError if there is neither.
    """
    in_pod = "KUBERNETES_SERVICE_HOST" in environment and (folder / "token").exists()
    if in_pod and kubeconfig is None and context is None:
        return _of_pod(now, environment, folder)
    names = [kubeconfig] if kubeconfig else environment.get("KUBECONFIG", "").split(os.pathsep)
    home = Path(environment.get("HOME", "/")) / ".kube" / "config"
    paths = [Path(name) for name in names if name] or [home]
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise ValueError(
            f"there is no kubeconfig {', '.join(map(str, paths))}, and this is not a pod with a "
            "service account: name a file by ?kubeconfig= or $KUBECONFIG"
        )
    listed = ", ".join(map(str, existing))
    try:
        return _of_files(existing, listed, context, now)
    except (LookupError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"the kubeconfig {listed} is not valid: {what}") from error


def _of_pod(now: Callable[[], float], environment: Mapping[str, str], folder: Path) -> Access:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    namespace = (folder / "namespace").read_text().strip()
    credentials = Credentials(_reader(folder / "token"), now)
    return Access(Host(host, port), "", context, namespace, credentials)


def _of_files(
    paths: Sequence[Path], listed: str, wanted: str | None, now: Callable[[], float]
) -> Access:
    configs = [(_parsed(path), path.parent) for path in paths]
    name = wanted or next(filter(None, [each.get("current-context") for each, _ in configs]), None)
    if not name:
        raise ValueError(f"the kubeconfig {listed} has no current-context: name one by ?context=")
    context, _ = _named(configs, "context", name)
    cluster, beside = _named(configs, "cluster", context["cluster"])
    user, home = _named(configs, "user", context["user"]) if context.get("user") else ({}, beside)
    for option in UNSUPPORTED:
        if cluster.get(option):
            raise ValueError(f"the kubeconfig {listed} has {option}, which is not supported")
    parts = urlsplit(cluster["server"])
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the server in the kubeconfig {listed} must be an https:// address")
    return Access(
        Host(parts.hostname, port),
        parts.path.rstrip("/"),
        _tls(cluster, beside, user, home) if parts.scheme == "https" else None,
        context.get("namespace") or "default",
        Credentials(_source(user, home), now),
        not cluster.get("insecure-skip-tls-verify"),
    )


def _parsed(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    try:
        config: Any = json.loads(text)
    except ValueError:
        yaml: Any = library("yaml", "kubernetes")
        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError as error:
            where = getattr(error, "problem_mark", None)
            line = f", line {where.line + 1}" if where else ""
            raise ValueError(f"the kubeconfig {path} is not valid YAML{line}") from None
    if not isinstance(config, dict):
        raise ValueError(f"the kubeconfig {path} is not a mapping")
    return config


def _named(
    configs: Sequence[tuple[Mapping[str, Any], Path]], kind: str, name: str
) -> tuple[dict[str, Any], Path]:
    """The entry of that name in the first file that has one, as `kubectl` reads several files, and
    the folder of that file, to which its paths are relative.
    """
    for config, folder in configs:
        for each in config.get(f"{kind}s") or ():
            if each["name"] == name:
                return each[kind] or {}, folder
    raise ValueError(f"the kubeconfig has no {kind} {name!r}")


def _tls(
    cluster: Mapping[str, Any], beside: Path, user: Mapping[str, Any], home: Path
) -> ssl.SSLContext:
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(beside / file) if file else None,
        cadata=b64decode(data).decode() if data else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with tempfile.TemporaryDirectory() as private:
        certificate = _file(user, "client-certificate", home, private)
        key = _file(user, "client-key", home, private)
        if certificate:
            context.load_cert_chain(certificate, key, password="")
    return context


def _file(user: Mapping[str, Any], option: str, folder: Path, private: str) -> str | None:
    """The file that an option names, or one with its data."""
    if data := user.get(f"{option}-data"):
        path = Path(private) / option
        path.touch(mode=0o600)
        path.write_bytes(b64decode(data))
        return str(path)
    return str(folder / user[option]) if user.get(option) else None


def _source(user: Mapping[str, Any], folder: Path) -> Callable[[float], str] | None:
    if token := user.get("token"):
        return lambda _: str(token)
    if file := user.get("tokenFile"):
        return _reader(folder / file)
    if plugin := user.get("exec"):
        return lambda seconds: _run(plugin, seconds)
    return None


def _reader(path: Path) -> Callable[[float], str]:
    def read(_: float) -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NotApplied(f"the token cannot be read: {error}", "denied") from error

    return read


def _run(plugin: Mapping[str, Any], seconds: float) -> str:
    """Return the token that the command of a kubeconfig, such as that of a cloud, prints within
    *seconds*.
    """
    command = [plugin["command"], *(plugin.get("args") or ())]
    more = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    info = {
        "apiVersion": plugin["apiVersion"],
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=max(0.0, min(COMMAND_TIMEOUT, seconds)),
            env=os.environ | more | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
        )
        return str(json.loads(done.stdout)["status"]["token"])
    except subprocess.TimeoutExpired:
        late = f"the command {command[0]!r} of the kubeconfig, which prints a token, takes too long"
        raise NotApplied(late, "unreachable") from None
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        # What it printed may have a secret in it.
        what = f"the command {command[0]!r} of the kubeconfig has printed no token"
        raise NotApplied(f"{what}: {type(error).__name__}", "denied") from None
