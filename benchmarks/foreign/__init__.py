"""Programs in other languages, built once by their own tools: `python -m benchmarks.foreign`.

This command (`make bench`) and verification/interop build them, into a folder that git
ignores. If a tool is missing, its program is not built, and its contestants fail with an
ImportError.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "build" / "foreign"
# Includes the usual folder of a Go installation that is not on the PATH.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin"
# Seconds for one build.
BUILD_TIMEOUT = 240.0


class Kind(NamedTuple):
    """A language: its tools, and the commands that build and run the program."""

    tools: tuple[str, ...]
    pins: str
    """The file that pins the versions."""
    build: tuple[str, ...]
    run: tuple[str, ...]


def _kinds(built: str) -> dict[str, Kind]:
    java, node = f"{built}/java", f"{built}/node"
    maven = ("mvn", "--quiet", "--batch-mode", f"-Dbuilt={java}")
    install = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
    classes = f"{java}/classes:{java}/lib/*"
    return {
        "java": Kind(
            ("java", "javac", "mvn"),
            "pom.xml",
            (*maven, "compile", "dependency:copy-dependencies"),
            ("java", "-Xmx256m", "-cp", classes, "Contender"),
        ),
        "go": Kind(
            ("go",),
            "go.mod",
            ("go", "build", "-o", f"{built}/go/contender", "."),
            (f"{built}/go/contender",),
        ),
        "node": Kind(
            ("node", "npm"),
            "package.json",
            (*install, "--prefix", node),
            ("node", str(HERE / "node" / "contender.js")),
        ),
    }


KINDS = _kinds(str(BUILT))


def environment() -> dict[str, str]:
    """Return the environment of the tools and programs."""
    return os.environ | {"PATH": PATH, "LEASELOCK_BUILT": str(BUILT / "node")}


def digest(kind: str) -> str:
    """Return the hash of the sources of a program."""
    sources = sorted(path for path in (HERE / kind).rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def fresh(kind: str) -> bool:
    """Whether the program is built from the present sources."""
    mark = BUILT / kind / "built"
    return mark.exists() and mark.read_text() == digest(kind)


def required(kind: str) -> None:
    """Raise ImportError unless the program is built."""
    if not fresh(kind):
        raise ImportError(f"its program in {kind} is not built here (make bench builds it)")


def pinned(kind: str, pattern: str) -> str:
    """Return the pinned version of a library."""
    text = (HERE / kind / KINDS[kind].pins).read_text("utf-8")
    found = re.search(pattern, text)
    assert found, f"no version of {pattern} in {KINDS[kind].pins}"
    return found[1]


def missing(kind: str) -> list[str]:
    """Return the tools that are not installed."""
    return [tool for tool in KINDS[kind].tools if not shutil.which(tool, path=PATH)]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process build at a time."""
    with open(folder / "building", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(kind: str) -> str:
    """Build a program unless it is up to date; return the error, or an empty string."""
    if fresh(kind):
        return ""
    if tools := missing(kind):
        return f"{', '.join(tools)} is missing"
    folder = BUILT / kind
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if fresh(kind):
            return ""
        if kind == "node":
            shutil.copy(HERE / kind / KINDS[kind].pins, folder)
        if fault := _built(kind):
            return fault
        Path(folder, "built").write_text(digest(kind))
    return ""


def _built(kind: str) -> str:
    """Run the build; the timeout covers tools that cannot reach their registry."""
    command = KINDS[kind].build
    try:
        run = subprocess.run(
            command,
            cwd=HERE / kind,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {BUILD_TIMEOUT:.0f} s"
    output = (run.stderr or run.stdout).strip().splitlines() or [
        f"{command[0]} failed without a message"
    ]
    return output[-1] if run.returncode else ""
