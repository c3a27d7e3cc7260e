"""Containers of tests: processes in namespaces of their own, confined as a deployment file says.

A container has its own PID and mount namespaces, and a root directory that is built from this
machine's programs and the files of its image. Its first process is the command, as in Docker. The
containers of a `Host` share a network namespace, in which their names lead to 127.0.0.1. Where
namespaces are not permitted, the test is skipped with a reason that begins with "no server".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import hiredis
import pytest
import redis

import leaselock
from testkit import container_root
from testkit.container_root import LIBRARIES, PROGRAMS
from testkit.servers.process import eventually, program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from testkit.container_root import Confinement

LAUNCHER = """\
#!/bin/sh
PYTHONPATH=/opt/lib exec python -c 'from leaselock._cli import main; raise SystemExit(main())' "$@"
"""


def install(folder: Path) -> None:
    """Copy leaselock and redis-py to a folder."""
    for package in (leaselock, redis, hiredis):
        assert package.__file__ is not None
        found = Path(package.__file__).parent
        shutil.copytree(found, folder / found.name, ignore=lambda *_: ["__pycache__"])


class Container:
    """One started container. Its output is in the file *log*."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def output(self) -> str:
        """What it has written until now."""
        return self.log.read_text("utf-8")

    @property
    def first(self) -> int:
        """The number of its process 1 in this machine; 0 before it is started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = path.read_text().split() if path.exists() else []
        return int(found[0]) if found else 0

    def status(self) -> dict[str, list[str]]:
        """What the kernel says of its process 1."""
        lines = Path(f"/proc/{self.first}/status").read_text().splitlines()
        return {key: value.split() for key, _, value in (line.partition(":") for line in lines)}

    def stop(self) -> int:
        """End it as `docker stop` does, by SIGTERM to its process 1; return its exit code."""
        if self.process.poll() is None and self.first:
            os.kill(self.first, signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """End it by force, if it runs. The kernel then ends all processes of its namespace."""
        if self.process.poll() is None:
            # Its process 1 itself: it has changed its user, so --kill-child does not reach it.
            os.kill(self.first or self.process.pid, signal.SIGKILL)
        self.process.wait()


class Host:
    """A network namespace with containers, and the images that they are made of."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        if os.geteuid():
            pytest.skip("no server: containers of tests need root")
        self.ip = program("ip", "/usr/sbin")
        self.folder = Path(tempfile.mkdtemp(prefix="containers-"))
        self.folder.chmod(0o755)
        hosts = f"127.0.0.1 localhost {' '.join(names)}\n"
        (self.folder / "hosts").write_text(hosts)
        self.started: list[Container] = []
        up = f'"{self.ip}" link set lo up && echo up && exec cat'
        self.network = subprocess.Popen(
            [program("unshare"), "--net", "sh", "-c", up],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.network.stdout is not None
        assert self.network.stderr is not None
        if self.network.stdout.readline() != b"up\n":
            reason = self.network.stderr.read().decode().strip()
            self.close()
            pytest.skip(f"no server: network namespaces are not permitted here: {reason}")

    def image(self, files: Mapping[str, str] | None = None) -> Path:
        """Return a new image with Python, leaselock and redis-py, and *files* by their path. Those
        that begin with "#!" are executable.
        """
        image = Path(tempfile.mkdtemp(prefix="image-", dir=self.folder))
        programs, libraries = image / PROGRAMS, image / LIBRARIES
        programs.mkdir(parents=True)
        (programs / "leaselock").write_text(LAUNCHER)
        (programs / "python").symlink_to(Path(sys.executable).resolve())
        install(libraries)
        for path, text in (files or {}).items():
            (image / path).parent.mkdir(parents=True, exist_ok=True)
            (image / path).write_text(text)
        for path_ in [image, *image.rglob("*")]:
            if not path_.is_symlink():
                script = path_.is_file() and path_.read_bytes()[:2] == b"#!"
                path_.chmod(0o755 if script or path_.is_dir() else 0o644)
        return image

    def start(self, image: Path, command: Sequence[str], how: Confinement) -> Container:
        """Start a container."""
        number = len(self.started)
        root, log = self.folder / f"root-{number}", self.folder / f"log-{number}"
        root.mkdir()
        spec = how._asdict() | {
            "image": str(image),
            "root": str(root),
            "hosts": str(self.folder / "hosts"),
            "command": list(command),
        }
        words = [program("nsenter"), f"--net=/proc/{self.network.pid}/ns/net", "--"]
        words += [program("unshare"), "--mount", "--pid", "--fork", "--kill-child"]
        words += [sys.executable, container_root.__file__, json.dumps(spec)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        container = Container(process, log)
        self.started.append(container)
        return container

    def run(self, image: Path, command: Sequence[str], how: Confinement) -> tuple[int, str]:
        """Run a container to its end; return its exit code and its output."""
        container = self.start(image, command, how)
        code = container.process.wait(120)
        return code, container.output()

    def close(self) -> None:
        """End all containers, and remove what they were made of."""
        for container in self.started:
            container.kill()
        assert self.network.stdin is not None
        self.network.stdin.close()
        self.network.wait()
        for stream in (self.network.stdout, self.network.stderr):
            assert stream is not None
            stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def confined(container: Container, user: int) -> bool:
    """Wait until the command of a container runs as *user*; return whether it has no capabilities
    and cannot get any.
    """

    def started() -> bool:
        assert container.process.poll() is None, container.output()
        if not container.first:
            return False
        status = container.status()
        return status["Uid"][0] == str(user) and status["Name"] != ["setpriv"]

    eventually(started)
    status = container.status()
    none = all(int(status[key][0], 16) == 0 for key in ("CapPrm", "CapEff", "CapBnd", "CapAmb"))
    return none and status["NoNewPrivs"] == ["1"] and status["NSpid"][-1] == "1"
