"""A private etcd: one member, or a cluster of several, on free ports of 127.0.0.1.

One object is one member, with its ports and its folder for its whole life, whatever happens to the
process in between. Elections are quick, so that a test of a dead leader is short.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testkit.servers.costs import starting
from testkit.servers.process import HOST, START_TIMEOUT, Process, eventually, free_port, program
from testkit.servers.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Milliseconds. A machine under load misses shorter heartbeats.
HEARTBEAT, ELECTION = 100, 1000
ROOT = ("root", "of all")
# The code of gRPC for a login that is not valid.
UNAUTHENTICATED = 16


class Member:
    """One member of a cluster."""

    def __init__(self, number: int, certificates: Certificates | None, mutual: bool) -> None:
        self.name = f"m{number}"
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-"))
        self.port, self.peer_port = free_port(), free_port()
        self.certificates = certificates
        self.mutual = mutual
        self.process: Process | None = None

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @property
    def client_url(self) -> str:
        """How etcdctl reaches it."""
        return f"http{'s' if self.certificates else ''}://{self.address}"

    def start(self, peers: Sequence[Member], options: Mapping[str, object]) -> None:
        """Start it; `Etcd.wait_until_ready` waits until it answers."""
        peer = f"http://{HOST}:{self.peer_port}"
        words: dict[str, object] = {
            "name": self.name,
            "data-dir": self.folder / "data",
            "listen-client-urls": self.client_url,
            "advertise-client-urls": self.client_url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{p.name}=http://{HOST}:{p.peer_port}" for p in peers),
            "heartbeat-interval": HEARTBEAT,
            "election-timeout": ELECTION,
            # The least work for a login, which takes a tenth of a second otherwise.
            "bcrypt-cost": 4,
            "logger": "zap",
        }
        if self.certificates:
            words["cert-file"], words["key-file"] = self.certificates.cert, self.certificates.key
            if self.mutual:
                words["trusted-ca-file"] = self.certificates.ca
                words["client-cert-auth"] = True
        words |= options
        command = [program("etcd")]
        for name, value in words.items():
            command.append(f"--{name}={str(value).lower() if value in (True, False) else value}")
        self.process = Process(command, self.folder / "log")

    def running(self) -> Process:
        """Its process, which has been started."""
        assert self.process is not None
        return self.process

    def remove(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Etcd:
    """Some members as one store. With *tls* they speak TLS only, with *mutual* they ask for the
    certificate of a client, too; *options* are those of the command `etcd`, such as
    ``quota_backend_bytes=2**21``.
    """

    def __init__(
        self, count: int = 1, *, tls: bool = False, mutual: bool = False, **options: object
    ) -> None:
        self.secrets = Path(tempfile.mkdtemp(prefix="etcd-tls-"))
        self.certificates = Certificates(self.secrets) if tls or mutual else None
        self.options = {name.replace("_", "-"): value for name, value in options.items()}
        self.members = [Member(number, self.certificates, mutual) for number in range(count)]
        self.user: tuple[str, str] | None = None
        self.count = 0
        with starting(f"etcd of {count}" if count > 1 else "etcd"):
            self.start()

    # --- starting and stopping ------------------------------------------------------------------

    def start(self) -> None:
        """Start the members that do not run, and wait until all serve."""
        for member in self.members:
            if member.process is None or not member.process.alive:
                member.start(self.members, self.options)
        self.wait_until_ready()
        for member in self.members:
            assert member.running().alive, f"etcd ended: {member.running().output()}"

    def wait_until_ready(self) -> None:
        """Wait until every living member serves."""
        eventually(lambda: all(map(self.serves, self.alive())))

    def serves(self, member: Member) -> bool:
        """Whether a member answers reads that need a quorum; True if its process has ended."""
        if not member.running().alive:
            return True
        asked = self._run(["endpoint", "health"], member, check=False)
        return asked.returncode == 0 or "permission denied" in asked.stderr

    def alive(self) -> list[Member]:
        """Those whose process runs."""
        return [member for member in self.members if member.running().alive]

    def leader(self) -> Member:
        """The member that leads."""
        found: list[Member] = []

        def leads() -> bool:
            for member in self.alive():
                (status,) = self.control("endpoint", "status", member=member)
                if status["Status"]["header"]["member_id"] == status["Status"].get("leader"):
                    found[:] = [member]
                    return True
            return False

        eventually(leads)
        return found[0]

    def restart(self) -> None:
        """End all members in order, and start them again with their data."""
        for member in self.members:
            member.running().stop()
        self.start()

    def stop(self) -> None:
        """End all members, and remove their folders."""
        for member in self.members:
            member.remove()
        shutil.rmtree(self.secrets, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- speaking to it -------------------------------------------------------------------------

    @property
    def hosts(self) -> str:
        """The addresses of all members."""
        return ",".join(member.address for member in self.members)

    def url(self, prefix: str = "", login: str = "", **options: object) -> str:
        """How clients reach it."""
        scheme = "etcd"
        if self.certificates:
            made, files = self.certificates, {"ca": self.certificates.ca}
            if self.members[0].mutual:
                files |= {"cert": made.cert, "key": made.key}
            scheme, options = "etcds", files | options
        query = "&".join(f"{name}={value}" for name, value in options.items())
        at = f"{login}@" if login else ""
        return f"{scheme}://{at}{self.hosts}/{prefix}{'?' if query else ''}{query}"

    def control(self, *words: str, member: Member | None = None) -> Any:
        """What etcdctl prints, read as JSON; None if it prints nothing."""
        return json.loads(self._run(["--write-out=json", *words], member).stdout or "null")

    def print(self, *words: str) -> str:
        """What etcdctl prints."""
        return self._run(list(words), None).stdout

    def _run(
        self, words: Sequence[str], member: Member | None, *, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        members = [member] if member else self.alive()
        command = [program("etcdctl"), f"--endpoints={','.join(m.client_url for m in members)}"]
        if self.certificates:
            made = self.certificates
            command += [f"--cacert={made.ca}", f"--cert={made.cert}", f"--key={made.key}"]
        if self.user:
            command.append(f"--user={':'.join(self.user)}")
        asked = subprocess.run(
            [*command, *words],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"ETCDCTL_API": "3"},
        )
        assert not check or asked.returncode == 0, asked.stdout + asked.stderr
        return asked

    def compact(self) -> None:
        """Throw away the history of all keys."""
        (status,) = self.control("endpoint", "status", member=self.alive()[0])
        revision = str(status["Status"]["header"]["revision"])
        done = self._run(["compaction", revision], None, check=False)
        # Since the last time, nothing was written.
        known = "required revision has been compacted" in done.stderr
        assert done.returncode == 0 or known, done.stdout + done.stderr

    def fill(self, prefix: str) -> bool:
        """Write a large value; return whether the database has reached its quota."""
        self.count += 1
        written = self._run(["put", f"{prefix}{self.count}", "x" * 50_000], None, check=False)
        assert not written.returncode or "space exceeded" in written.stderr, written.stderr
        return written.returncode != 0

    def make_room(self, prefix: str) -> None:
        """Delete the keys below *prefix*, and let the database accept writes again."""
        self.print("del", "--prefix=true", prefix)
        self.compact()
        self.print("defrag")
        self.print("alarm", "disarm")

    def knows_login(self, token: str) -> bool:
        """Whether a login is valid. The question renews it."""
        wire = http.client.HTTPConnection(HOST, self.alive()[0].port, timeout=START_TIMEOUT)
        with closing(wire):
            headers = {"Authorization": token}
            wire.request("POST", "/v3/kv/range", json.dumps({"key": "AA=="}), headers)
            answer = json.loads(wire.getresponse().read())
        return bool(answer.get("code") != UNAUTHENTICATED)

    # --- users ----------------------------------------------------------------------------------

    def require_login(self) -> None:
        """Require a password from now on; etcdctl logs in as ROOT."""
        self.print("user", "add", ":".join(ROOT))
        self.print("user", "grant-role", "root", "root")
        self.print("auth", "enable")
        self.user = ROOT

    def add_user(self, name: str, password: str, prefix: str) -> None:
        """Add a user who may read and write the keys below *prefix* and nothing else."""
        self.print("role", "add", name)
        self.print("role", "grant-permission", "--prefix=true", name, "readwrite", prefix)
        self.print("user", "add", f"{name}:{password}")
        self.print("user", "grant-role", name, name)
