"""What the documents refer to exists: each test that they name, each file that they link to."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
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
