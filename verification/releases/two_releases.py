"""Wheels of this tree, and of releases after it whose layouts are raised, each installed alone.

A wheel is an archive of the package and three files about it, so none of the tools that build one
is needed, and nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import leaselock

SOURCE = Path(leaselock.__file__).parent
LIMIT = 120.0
CONSTANT = re.compile(r"^(LAYOUT|SCHEMA) = Layout\((\d+), (\d+)\)$", re.MULTILINE)
# The statements that create the tables have the number of their layout, too.
STATEMENT = re.compile(r"\('schema', '(\d+)'\)")
VERSION = re.compile(r'^__version__ = ".*"$', re.MULTILINE)
# Redis, ZooKeeper, SQLite, SQL, the document protocol; and the statements of the databases.
PLACES = 5, 1


class Release(NamedTuple):
    """An installed release."""

    version: str
    folder: Path

    def environment(self) -> dict[str, str]:
        """The surroundings in which Python imports it, before the one that the tests import."""
        return os.environ | {"PYTHONPATH": str(self.folder)}

    def command(self, *words: str) -> list[str]:
        """Its command line."""
        return [sys.executable, "-m", "leaselock", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run its command to the end."""
        return subprocess.run(
            self.command(*words),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )


def raised(package: Path, by: int) -> None:
    """Raise each layout of a copy. It admits the one before it."""

    def layout(found: re.Match[str]) -> str:
        version = int(found[2]) + by
        return f"{found[1]} = Layout({version}, {version - 1})"

    def statement(found: re.Match[str]) -> str:
        version = int(found[1]) + by
        return f"('schema', '{version} {version - 1}')"

    places = [
        sum(_replaced(path, pattern, by) for path in package.rglob(files))
        for files, pattern, by in (
            ("*.py", CONSTANT, layout),
            ("schema.sql", STATEMENT, statement),
        )
    ]
    assert tuple(places) == PLACES, places


def _replaced(path: Path, pattern: re.Pattern[str], by: object) -> int:
    text, count = pattern.subn(by, path.read_text("utf-8"))  # type: ignore[call-overload]
    if count:
        path.write_text(text, "utf-8")
    return int(count)


def wheel(folder: Path, version: str, by: int = 0) -> Path:
    """Build a wheel of this tree, or of a copy whose layouts are raised by *by*."""
    package = folder / version / "leaselock"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    if by:
        assert _replaced(package / "version.py", VERSION, f'__version__ = "{version}"') == 1
        raised(package, by)
    made = folder / f"leaselock-{version}-py3-none-any.whl"
    about = f"leaselock-{version}.dist-info"
    files = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: leaselock\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    with zipfile.ZipFile(made, "w") as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(package.parent))
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in (*archive.namelist(), f"{about}/RECORD"))
        archive.writestr(f"{about}/RECORD", record)
    return made


def installed(folder: Path, version: str, by: int = 0) -> Release:
    """Install such a wheel into a folder of its own."""
    made, target = wheel(folder, version, by), folder / f"installed-{version}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(made)], check=True, timeout=LIMIT)
    release = Release(version, target)
    assert release.run("version").stdout == f"leaselock {version}\n"
    return release
