"""Where the API server is, and what to log in with: in a pod, or by a kubeconfig.

A kubeconfig is YAML, and JSON is YAML, too: a file in JSON needs no library.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from base64 import b64decode
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from leaselock._backends import library
from leaselock._backends.url import Host
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds after which a token is read again: kubelet replaces those of pods every hour or so.
READ_AGAIN = 60.0
# Seconds after which a command that has failed is run again, while the token is still valid.
RETRY = 10.0
PRINTS = "the command of the kubeconfig, which prints a token,"
# Seconds that a command which logs in may take.
COMMAND_TIMEOUT = 30.0
# Seconds before its end in which a token is read again, while requests still use it.
EARLIER = 30.0
UNSUPPORTED = ("tls-server-name", "proxy-url")


class Token(NamedTuple):
    """What to log in with."""

    text: str
    lasts: float = FOREVER
    """For how many seconds it is valid."""

    def __repr__(self) -> str:
        return "<Token>"  # without the token


class Reading:
    """A token that is being read, which the requests of several threads may wait for."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: Exception | None = None


class Credentials:
    """The token of a user; none for a user with a certificate."""

    def __init__(
        self,
        read: Callable[[], Token] | None,
        now: Callable[[], float],
        *,
        command: bool = False,
    ) -> None:
        self.read = read
        self.now = now
        # Whether a command prints the token, which may take longer than a request.
        self.command = command
        self.token = ""
        self.read_at = self.expires = 0.0
        self.after_fork()

    def __repr__(self) -> str:
        return "<Credentials>"  # without the token

    def after_fork(self) -> None:
        """A child has not the thread that waits for the command."""
        self.mutex = threading.Lock()
        self.reading: Reading | None = None

    def header(self, until: float) -> dict[str, str]:
        """The header of a request that must be answered by *until*. A command goes on when that
        time is over; it runs once for all requests, and the next ones use what it prints.
        """
        read = self.read
        if read is None:
            return {}
        with self.mutex:
            reading = self.reading
            if reading is None and self.now() >= min(self.read_at, self.expires):
                reading = self._begin(read)
            if self.now() < self.expires:
                return self._header()
        if reading is not None:
            if not reading.ended.wait(max(0.0, until - self.now())):
                raise NotApplied(f"{PRINTS} takes too long; it goes on", "unreachable")
            if reading.error is not None:
                raise reading.error
        return self._header()

    def _header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _begin(self, read: Callable[[], Token]) -> Reading:
        reading = Reading()
        if not self.command:
            self._read(read, reading)
            return reading
        try:
            self.reading = reading
            threading.Thread(
                target=self._read, args=(read, reading), name="leaselock-token", daemon=True
            ).start()
        except BaseException as error:
            self.reading = None
            reading.ended.set()
            if isinstance(error, RuntimeError):  # the interpreter ends, or there are many threads
                raise NotApplied(f"{PRINTS}: {error}", "unreachable") from error
            raise
        return reading

    def _read(self, read: Callable[[], Token], reading: Reading) -> None:
        try:
            token = read()
            self.token, now = token.text, self.now()
            self.expires = now + token.lasts
            early = min(EARLIER, token.lasts / 10)
            self.read_at = self.expires - early if self.command else now + READ_AGAIN
        except Exception as error:
            # Raised in the threads that wait. The others use the token that they have.
            reading.error = error
            self.read_at = self.now() + RETRY
        finally:
            if self.reading is reading:
                self.reading = None
            reading.ended.set()

    def refused(self, header: Mapping[str, str] | None = None) -> bool:
        """A request with this header was refused: read the token again before the next one, unless
        that was done since. Return whether the next one may have another token.
        """
        if self.read is None:
            return False
        with self.mutex:
            if header is None or header.items() >= self._header().items():
                self.read_at = self.expires = 0.0
        return True


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
        _credentials(user, home, now),
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


def _credentials(user: Mapping[str, Any], folder: Path, now: Callable[[], float]) -> Credentials:
    if token := user.get("token"):
        return Credentials(lambda: Token(str(token)), now)
    if file := user.get("tokenFile"):
        return Credentials(_reader(folder / file), now)
    if plugin := user.get("exec"):
        return Credentials(lambda: _run(plugin), now, command=True)
    return Credentials(None, now)


def _reader(path: Path) -> Callable[[], Token]:
    def read() -> Token:
        try:
            return Token(path.read_text().strip())
        except OSError as error:
            raise NotApplied(f"the token cannot be read: {error}", "denied") from error

    return read


def _run(plugin: Mapping[str, Any]) -> Token:
    """Return the token that the command of a kubeconfig, such as that of a cloud, prints. Like
    client-go, use it until its `expirationTimestamp`; one without is used until it is refused.
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
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            env=os.environ | more | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
        )
        status = json.loads(done.stdout)["status"]
        expires = status.get("expirationTimestamp")
        left = datetime.fromisoformat(expires).timestamp() - time.time() if expires else FOREVER
        return Token(str(status["token"]), left)
    except subprocess.TimeoutExpired:
        late = f"the command {command[0]!r} of the kubeconfig, which prints a token, takes too long"
        raise NotApplied(late, "unreachable") from None
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        # What it printed may have a secret in it.
        what = f"the command {command[0]!r} of the kubeconfig has printed no token"
        raise NotApplied(f"{what}: {type(error).__name__}", "denied") from None
