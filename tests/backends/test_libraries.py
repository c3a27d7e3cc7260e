"""The supported versions of client libraries: what is refused, and that pyproject.toml agrees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.contrib.metadata import write_metadata

from leaselock._backends.libraries import LIBRARIES, Library, check_version
from leaselock._extras import install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
STORES = {
    "redis": "redis://h",
    "hiredis": "redis://h",
    "kazoo": "zookeeper://h",
    "psycopg": "postgresql://h/d",
    "pymysql": "mysql://h/d",
}


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        *(("8.1", True), ("8.1.0", True), ("8.2b1", True), ("8.10.3", True)),
        *(("8.0.9", False), ("7.4", False), ("9.0.0", False), ("10", False), ("?", False)),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, supported: bool) -> None:
    assert Library("redis", "8.1", "8").supports(version) is supported


def test_the_newest_version_may_have_several_numbers() -> None:
    library = Library("kazoo", "2.10", "2.11")
    assert library.requirement == "kazoo>=2.10,<2.12"
    assert library.supports("2.11.7")
    assert not library.supports("2.12.0")


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = [*EXTRAS.values(), *project["dependency-groups"].values()]
    texts = [text for group in groups for text in group if isinstance(text, str)]
    named = {re.split(r"[\[<>=]", text)[0].lower() for text in texts} - {"leaselock"}
    assert len(named) > 40
    record = (ROOT / "docs/decisions/0002-dependencies.md").read_text("utf-8")
    rows = " ".join(re.findall(r"^\|.*", record, re.M)).lower()
    assert named - set(re.findall(r"[\w-]+", rows)) == set()


def requirements() -> list[str]:
    """Every requirement of an extra or a dependency group of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [*project["project"]["optional-dependencies"].values()]
    groups.append(project["dependency-groups"]["test"])
    return [text for group in groups for text in group if isinstance(text, str)]


@pytest.mark.parametrize("package", LIBRARIES)
def test_the_extras_have_the_bounds_of_the_table(package: str) -> None:
    library = LIBRARIES[package]
    named = [re.sub(r"\[.*?\]", "", text) for text in requirements()]
    bounds = {text for text in named if re.match(rf"{library.project}(?![\w.-])", text)}
    assert bounds == {library.requirement}


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs/reference/platforms.md").read_text()
    rows = {
        f"| {library.project} | {library.lowest} | {library.newest}.x |"
        for library in LIBRARIES.values()
    }
    assert {row for row in rows if row not in text} == set()


@pytest.mark.parametrize("package", LIBRARIES)
def test_the_installed_versions_are_supported(package: str) -> None:
    pytest.importorskip(package)
    check_version(package)


def opened(folder: Path, url: str, class_name: str = "Client") -> str:
    """What a fresh interpreter that finds packages in *folder* first says of opening a store."""
    program = (
        "import leaselock, sys\n"
        f"try: leaselock.{class_name}(sys.argv[1])\n"
        "except ImportError as error: print(error)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}
    words = [sys.executable, "-c", program, url]
    return subprocess.check_output(words, env=env, text=True).strip()


@pytest.mark.parametrize("package", STORES)
@pytest.mark.parametrize("version", ["0.9", "99.1"])
def test_another_version_is_refused_when_the_store_is_opened(
    package: str, version: str, tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text(f"__version__ = {version!r}")
    library = LIBRARIES[package]
    said = opened(tmp_path, STORES[package])
    assert said == opened(tmp_path, STORES[package], "AsyncClient")
    assert said.startswith(f"{library.project} {version} is installed, and leaselock supports ")
    assert said.endswith(
        f"{library.lowest} to {library.newest}.x: pip install '{library.requirement}'"
    )


def test_a_version_of_a_client_of_the_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "valkey.py").write_text("__version__ = '5.0'\nclass Valkey: pass")
    program = "import leaselock, valkey\nleaselock.Client(valkey.Valkey())"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "ImportError: valkey 5.0 is installed, and leaselock supports 6.0 to 6.x" in done.stderr


def test_a_missing_library_is_named_with_what_its_extra_installs(tmp_path: Path) -> None:
    (tmp_path / "redis.py").write_text(
        "raise ModuleNotFoundError('no module named redis', name='redis')"
    )
    write_metadata(tmp_path)
    assert opened(tmp_path, "redis://h") == (
        "redis is not installed: pip install 'redis>=5.3,<9' 'hiredis>=3.2,<4'"
    )


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"all"}))
def test_what_an_extra_installs_is_known(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_metadata(tmp_path))
    needs = " ".join(f"'{each}'" for each in EXTRAS[extra])
    assert install_command(extra, "x") == f"pip install {needs}"


def test_where_leaselock_is_not_installed_the_library_is_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert install_command("redis", "redis>=5.3,<9") == "pip install 'redis>=5.3,<9'"


def test_an_error_within_a_library_is_not_taken_for_its_absence(tmp_path: Path) -> None:
    (tmp_path / "redis.py").write_text("import no_such_module")
    assert opened(tmp_path, "redis://h") == "No module named 'no_such_module'"
