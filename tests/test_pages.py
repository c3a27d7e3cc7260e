"""The code on the pages for users runs, in the order in which a reader meets it.

A page is played in an empty folder with an empty home. A block that begins with `# NAME.EXT` is a
file, and is saved. Other Python blocks are executed, in one namespace. In a `console` block the
lines after `$ ` are given to one shell, and the lines between are what it must print: `...` stands
for any text, and a line `...` for any lines. Servers that a page names are private ones.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser
from testkit.servers.redis import Redis
from tests.contrib.metadata import write_metadata

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sybil import Example

DOCS = Path(__file__).resolve().parents[1] / "docs"
# These pages hold fragments of programs; GIVEN is what these programs have besides.
FRAGMENTS = [
    DOCS / "how-to" / "optimistic.md",
    *sorted((DOCS / "stores").glob("*.md")),
]
PAGES = [
    page
    for folder in ("tutorial", "how-to", "stores")
    for page in sorted((DOCS / folder).glob("*.md"))
    if folder != "stores" or "```python" in page.read_text("utf-8")
]
GIVEN = """
import kazoo.recipe.lock
import leaselock
from sqlalchemy import create_engine

order = 5
client = leaselock.Client("memory://pages")
engine = create_engine("sqlite:///app.db")
with engine.begin() as connection:
    for statement in (
        "CREATE TABLE account (id INTEGER, balance INTEGER, version INTEGER, fence INTEGER)",
        "INSERT INTO account VALUES (5, 100, 1, 0)",
    ):
        connection.exec_driver_sql(statement)

def charge(order, fence):
    assert fence > 0
"""
FILE = re.compile(r"(?:#|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
REDIS = "redis://localhost:6379/0"
POSTGRES = ("postgresql://localhost/app", "postgresql://app@db/shop")
ZOOKEEPER = "zoo1,zoo2,zoo3"
ETCD = "etcd1:2379,etcd2:2379,etcd3:2379"
MASTERS = ("redis://a:6379/0", "redis://b:6379/0", "redis://c:6379/0")
END = "end of the command"
# A page with one of these starts processes. It is in the second tier.
PROCESSES = ("```console", REDIS, *POSTGRES, ZOOKEEPER, ETCD, *MASTERS)


def page_param(page: Path) -> Any:
    """The page as a parameter, in its tier."""
    text = page.read_text("utf-8")
    marks = [pytest.mark.heavy] if any(word in text for word in PROCESSES) else []
    return pytest.param(page, id=f"{page.parent.name}/{page.stem}", marks=marks)


class Shell:
    """One bash that runs the console blocks of a page."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        """Run a command; return what it, and what runs in the background, printed until its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho; echo '{END}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == END:
                return "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"the shell ended in: {command}\n{''.join(lines)}")

    def close(self) -> None:
        """End it, and wait until it has ended."""
        assert self._process.stdout is not None
        self._process.communicate("kill $(jobs -p) 2>/dev/null; wait\n", timeout=60)


def matches(expected: str, printed: str) -> bool:
    """Whether the text was printed: `...` stands for any text, a line of it for any lines."""
    pattern = ""
    for line in expected.splitlines():
        escaped = re.escape(line.rstrip()).replace(r"\.\.\.", ".*")
        pattern += r"(?:.*\n)*" if line.strip() == "..." else escaped + r" *\n"
    lines = "".join(f"{line}\n" for line in printed.splitlines())
    return re.fullmatch(pattern, lines) is not None


class Play:
    """What a page does to an empty folder."""

    def __init__(self, folder: Path, servers: dict[str, str]) -> None:
        home = folder / "home"
        home.mkdir()
        # With the fixtures of pytest, as an installed leaselock has them.
        path = [str(write_metadata(home / "installed")), os.environ.get("PYTHONPATH", "")]
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(path),
        }
        self._folder = folder
        self._servers = servers
        self.shell = Shell(folder, environment)

    def private(self, text: str) -> str:
        """Return the text with the private servers instead of those that it names."""
        for named, private in self._servers.items():
            text = text.replace(named, private)
        return text

    def save(self, example: Example) -> None:
        """Save a block that is a file; a Python block that is not is left to be executed."""
        source = str(example.parsed)
        if name := FILE.match(source):
            path = self._folder / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.private(source), "utf-8")

    def console(self, example: Example) -> None:
        """Run the commands of a block, and compare what they print."""
        for step in re.split(r"^\$ ", str(example.parsed), flags=re.M)[1:]:
            command, *lines = re.sub(r"\\\n> ?", "", step).splitlines()
            expected = "".join(f"{line}\n" for line in lines)
            printed = self.shell.run(self.private(command))
            assert matches(self.private(expected), printed), (
                f"$ {command}\nexpected:\n{expected}\nprinted:\n{printed}"
            )


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Private servers for those that the page names."""
    text = request.getfixturevalue("page").read_text("utf-8")
    found = {}
    for named in POSTGRES:
        if named in text:
            found[named] = request.getfixturevalue("postgres").url
    if ZOOKEEPER in text:
        found[ZOOKEEPER] = request.getfixturevalue("ensemble").hosts
    if ETCD in text:
        found[ETCD] = request.getfixturevalue("etcd").hosts
    with ExitStack() as started:
        for named in (REDIS, *MASTERS):
            if named in text:
                found[named] = started.enter_context(Redis()).url
        yield found


@pytest.mark.parametrize("page", [page_param(page) for page in PAGES])
def test_code_of_a_page_runs(
    page: Path, tmp_path: Path, servers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(tmp_path, servers)
    # The embedded store of the blocks that run here is that of the shell.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)

    def execute(example: Example) -> None:
        if FILE.match(str(example.parsed)):
            play.save(example)
        else:
            source = play.private(str(example.parsed))
            code = compile(source, str(page), "exec", dont_inherit=True)
            exec(code, example.namespace)

    parsers: list[Any] = [
        CodeBlockParser(language, evaluator)
        for language, evaluator in (
            ("python", execute),
            ("console", play.console),
            *((language, play.save) for language in ("ini", "yaml", "sh", "toml", "sql", "text")),
        )
    ]
    document = Sybil(parsers).parse(page)
    if page in FRAGMENTS:
        exec(GIVEN, document.namespace)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        # A page may leave its client open, as a program that ends does.
        for value in document.namespace.values():
            if isinstance(value, leaselock.Client):
                value.close()
            elif isinstance(value, Engine):
                value.dispose()
        # A lock of sherlock is released when it is garbage: before its server ends.
        document.namespace.clear()
        gc.collect()
        play.shell.close()
