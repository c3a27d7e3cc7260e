"""A private instance of systemd for the units of one user, in namespaces of its own.

Each `Systemd` stands for a host: it has its own mounts, processes, D-Bus and units. Where it cannot
be started, the test is skipped with a reason that begins with "no server".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from testkit.containers import install
from testkit.servers.process import eventually, program

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEMD = "/usr/lib/systemd/systemd"
RUN = "/run/user/0"
PYTHON = "/usr/local/python"
# What the units must see of leaselock, also those whose user cannot read our folders.
LEASELOCK = f"""\
#!/bin/sh
export PYTHONPATH=/usr/local/lib LD_LIBRARY_PATH={PYTHON}/lib
exec {PYTHON}/bin/python3 -m leaselock "$@"
"""
# Credentials are mounted by a helper of systemd in a mount namespace of its own: it is shared with
# ours, which is shared with no other.
BEGIN = f"""
set -e
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p {RUN} /run/systemd/system
chmod 711 {RUN}
cp -a /etc "$HOME/copy"
mkdir "$HOME/copy/leaselock"
cp -p "$HOME"/etc/* "$HOME/copy/leaselock/"
mount --bind "$HOME/copy" /etc
mount -t tmpfs -o mode=755 tmpfs /usr/local
mkdir {PYTHON}
mount --bind "$PREFIX" {PYTHON}
cp -a "$HOME/bin" "$HOME/lib" /usr/local/
dbus-daemon --session --fork --address="$DBUS_SESSION_BUS_ADDRESS"
{SYSTEMD} --user --log-target=console
"""


class Systemd:
    """An instance with these *units*, as texts. *programs* are scripts in /usr/local/bin, beside
    leaselock; *secrets* are files in /etc/leaselock that only root reads.
    """

    def __init__(
        self, units: Mapping[str, str], programs: Mapping[str, str], secrets: Mapping[str, str]
    ) -> None:
        if not os.path.exists(SYSTEMD):
            pytest.skip("no server: systemd is not installed")
        program("dbus-daemon")
        if os.geteuid():
            pytest.skip("no server: an instance of systemd in a namespace needs root")
        self.folder = Path(tempfile.mkdtemp(prefix="systemd-"))
        install(self.folder / "lib")
        programs = {"leaselock": LEASELOCK, **programs}
        parts = ((".config/systemd/user", units, 0o644), ("bin", programs, 0o755))
        for name, files, mode in (*parts, ("etc", secrets, 0o600)):
            folder = self.folder / name
            folder.mkdir(parents=True)
            for file, text in files.items():
                (folder / file).write_text(text)
                (folder / file).chmod(mode)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LEASELOCK")}
        self.env |= {"HOME": str(self.folder), "XDG_RUNTIME_DIR": RUN, "PREFIX": sys.base_prefix}
        self.env["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={RUN}/bus"
        words = "--mount --pid --fork --kill-child --mount-proc".split()
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program("unshare"), *words, "sh", "-c", BEGIN],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(lambda: self.process.poll() is not None or self._answers())
        if self.process.poll() is not None:
            reason = self.log.read_text("utf-8").strip().splitlines()[-1:]
            self.close()
            pytest.skip(f"no server: systemd does not start here: {reason}")

    def _answers(self) -> bool:
        return self("is-system-running").stdout.strip() in ("running", "degraded")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `systemctl --user` with these words."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        first = path.read_text().split() if path.exists() else []
        if not first:
            return subprocess.CompletedProcess(words, 1, "", "not started")
        enter = [program("nsenter"), "-t", first[0], "-m", "-p", "--"]
        return subprocess.run(
            [*enter, "systemctl", "--user", "--no-pager", *words],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Return properties of a unit."""
        lines = self("show", unit, *(f"--property={each}" for each in properties)).stdout
        return dict(line.split("=", 1) for line in lines.splitlines())

    def close(self) -> None:
        """End it, and all that it has started."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
