"""What the documents refer to exists: each test that they name, each file that they link to.

And the pages of reference leave out no name, no argument and no command.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import leaselock
from leaselock.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REFERENCE = ROOT / "docs" / "reference"
TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@cache
def functions(path: Path) -> set[str]:
    """The tests in a file."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for path, name in TEST.findall(text):
        assert (ROOT / path).exists(), path
        assert not name or name in functions(ROOT / path), f"{path}::{name}"
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link


def test_the_pages_name_tests_at_all() -> None:
    named = [name for page in PAGES for _, name in TEST.findall(page.read_text()) if name]
    assert len(named) > 10


def words_of(page: str) -> set[str]:
    """All words on a page of reference."""
    return set(re.findall(r"\w+", (REFERENCE / page).read_text("utf-8")))


def test_the_page_of_the_interface_leaves_nothing_out() -> None:
    names = {name for name in leaselock.__all__ if not name.startswith("_")}
    for cls in (leaselock.AsyncClient, leaselock.AsyncLock, leaselock.AsyncLease):
        names |= {name for name in vars(cls) if not name.startswith("_")}
    for offered in (leaselock.Client, leaselock.Client.lock):
        names |= set(inspect.signature(offered).parameters)
    assert names - {"self", "of"} <= words_of("python.md")


def test_the_page_of_the_command_line_names_each_command() -> None:
    assert set(COMMANDS) <= words_of("command-line.md")
