"""What users install: the types that checkers see, the scripts of a release, the licences."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

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


def test_what_the_owner_has_to_fill_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".github").mkdir()
    shutil.copy(ROOT / "scripts" / "release", tmp_path / "scripts")
    (tmp_path / "src" / "leaselock").mkdir(parents=True)
    shutil.copy(SOURCE / "leaselock" / "version.py", tmp_path / "src" / "leaselock")
    file = tmp_path / "pyproject.toml"
    missing = "sh", tmp_path / "scripts" / "release", "--missing"
    file.write_text('name = "leaselock"\nSource = "https://code.test/leaselock"\n')
    ran = run(*missing)
    assert (ran.returncode, ran.stdout) == (0, "ok: the owner's URLs are filled in\n")
    file.write_text('name = "leaselock"\nSource = "https://leaselock.example/source"\n')
    ran = run(*missing)
    assert (ran.returncode, ran.stdout) == (
        1,
        'NOT ready: pyproject.toml:2:Source = "https://leaselock.example/source"\n',
    )


def test_links_of_the_readme_lead_to_the_repository_from_the_package_index(tmp_path: Path) -> None:
    ran = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    assert ran.returncode == 0, ran.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as built:
        (name,) = (name for name in built.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(built.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", ()))
    text = str(metadata.get_payload())
    links = re.findall(r"\]\((\S+?)\)", text)
    files = re.findall(r"\]\((?!https:)(\S+?)\)", (ROOT / "README.md").read_text("utf-8"))
    tag = f"v{leaselock.__version__}"
    assert len(files) > 20
    assert [link.replace("/raw/", "/blob/") for link in links if tag in link] == [
        f"{urls['Source']}/blob/{tag}/{file}" for file in files
    ]
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"{urls['Source']}/raw/{tag}/docs/images/top.svg" in links


def test_a_release_is_dry_by_default() -> None:
    before = run("git", "tag").stdout
    ran = run("sh", ROOT / "scripts" / "release")
    assert f"leaselock {leaselock.__version__}" in ran.stdout
    complete = run("sh", ROOT / "scripts" / "release", "--missing").returncode == 0
    assert ("NOT ready" in ran.stdout) == bool(ran.returncode)
    assert complete or "NOT ready: pyproject.toml" in ran.stdout
    assert run("git", "tag").stdout == before
    assert run("sh", ROOT / "scripts" / "release", "--rehearse").returncode == 64
