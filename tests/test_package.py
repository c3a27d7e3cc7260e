"""What users install: the types that checkers see, the scripts of a release, the licences."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import leaselock

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "typing" / "program.py"
SOURCE = Path(leaselock.__file__).parents[1]


def run(*words: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    env = {**os.environ, "MYPYPATH": str(SOURCE)}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_mypy_finds_the_types_of_a_program(tmp_path: Path) -> None:
    ran = run(sys.executable, "-m", "mypy", "--strict", "--config-file=", PROGRAM, folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_pyright_finds_the_types_of_a_program(tmp_path: Path) -> None:
    settings = {
        "include": [str(PROGRAM)],
        "extraPaths": [str(SOURCE)],
        "typeCheckingMode": "strict",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    ran = run(sys.executable, "-m", "pyright", "--project", tmp_path, folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_package_neither_holds_nor_imports_the_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/leaselock"]
    imported = re.compile(r"^\s*(?:from|import) (?:testkit|tests|verification)\b", re.MULTILINE)
    files = list((ROOT / "src").rglob("*.py"))
    assert files
    assert [file for file in files if imported.search(file.read_text("utf-8"))] == []


def test_licences_and_materials(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    run(sys.executable, ROOT / "scripts" / "sbom", target)
    bill = json.loads(target.read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    packages = {component["purl"].partition("@")[0] for component in bill["components"]}
    assert {"pkg:pypi/redis", "pkg:pypi/kazoo", "pkg:pypi/psycopg"} <= packages


FILLED = """
name_is_registered = true
source = "https://code.test/leaselock"
documentation = "https://docs.test/leaselock"
issues = "https://code.test/leaselock/issues"
changelog = "https://code.test/leaselock/changelog"
security = "security@leaselock.test"
"""


def test_what_the_owner_has_to_fill_in_is_named(tmp_path: Path) -> None:
    missing = ROOT / "scripts" / "missing"
    file = tmp_path / "release.toml"
    file.write_text(FILLED)
    ran = run(sys.executable, missing, file)
    assert (ran.returncode, ran.stdout) == (0, "ok: release.toml is complete\n")
    assert tomllib.loads(FILLED).keys() == tomllib.loads((ROOT / "release.toml").read_text()).keys()
    for name, value in tomllib.loads(FILLED).items():
        for wrong in ("false",) if value is True else ('""', '"https://leaselock.example/x"'):
            file.write_text(re.sub(rf"^{name} = .*$", f"{name} = {wrong}", FILLED, flags=re.M))
            ran = run(sys.executable, missing, file)
            assert ran.returncode == 1
            assert [line.split(": ")[2] for line in ran.stdout.splitlines()] == [name]


def test_links_of_the_readme_are_urls_on_the_package_index(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src" / "leaselock").mkdir(parents=True)
    shutil.copy(SOURCE / "leaselock" / "version.py", tmp_path / "src" / "leaselock")
    (tmp_path / "release.toml").write_text(FILLED)
    ran = run(sys.executable, "-m", "hatchling", "metadata", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    readme = json.loads(ran.stdout)["readme"]
    assert readme["content-type"] == "text/markdown"
    links = re.findall(r"\]\((\S+?)\)", readme["text"])
    base = "https://code.test/leaselock/"
    assert len(links) > 20
    assert [link for link in links if not link.startswith(base)] == []
    tag = f"v{leaselock.__version__}"
    assert f"{base}blob/{tag}/docs/index.md" in links
    assert f"{base}raw/{tag}/docs/images/top.svg" in links


def test_a_release_is_dry_by_default() -> None:
    before = run("git", "tag").stdout
    ran = run("sh", ROOT / "scripts" / "release")
    assert f"leaselock {leaselock.__version__}" in ran.stdout
    complete = run("python3", ROOT / "scripts" / "missing").returncode == 0
    assert ("NOT ready" in ran.stdout) == bool(ran.returncode)
    assert complete or "NOT ready: release.toml" in ran.stdout
    assert run("git", "tag").stdout == before
    assert run("sh", ROOT / "scripts" / "release", "--rehearse").returncode == 64


def test_a_dry_release_goes_on_and_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "made $1"\ntest "$1" != audit\n')
    make.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ran = run("sh", ROOT / "scripts" / "release", "--dry")
    made = re.findall(r"^made (\w+)$", ran.stdout, re.M)
    assert made == "audit test verify docs package".split()
    assert [line for line in ran.stdout.splitlines() if line.startswith("NOT ready: make")] == [
        "NOT ready: make audit"
    ]
    assert ran.returncode == 1
