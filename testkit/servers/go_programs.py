"""Programs written in Go, each built once from the module of one version, and kept."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

# Seconds for the download and the build.
BUILD_TIMEOUT = 900.0


@cache
def go_program(module: str, version: str) -> Path:
    """The program of a module, built once; a skip where that is not possible."""
    # Go names the program of `…/nats-server/v2` without the version.
    name = re.sub(r"/v\d+$", "", module).rpartition("/")[2]
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        # The system's packages have none that is new enough, so that this is not "no server".
        pytest.skip(f"Go is not installed, so there is no {name}")
    cache = Path.home() / ".cache" / "leaselock-servers" / f"{name}-{version}"
    path = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command = [go, "install", f"{module}@{version}"]
            environment = os.environ | {"GOBIN": str(cache)}
            try:
                done = subprocess.run(
                    command,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_TIMEOUT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"no server: {name} was not built in time")
            if done.returncode:
                pytest.skip(f"no server: {name} cannot be built: {done.stderr[-500:]}")
    return path
