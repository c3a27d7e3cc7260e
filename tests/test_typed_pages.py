"""mypy and pyright find no error in the Python code of the pages, nor pyright in the examples.

`make check` runs mypy on the examples. A block that begins with `# NAME.py` is a module; the other
blocks of a page are one program, as in tests/test_pages.py. The functions of a page have no
annotations, and their bodies are checked all the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import leaselock

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
SOURCE = Path(leaselock.__file__).parents[1]
FOLDERS = ("tutorial", "how-to", "stores", "reference")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"# ([\w./-]+\.py)\n")
# What programs have besides the fragments of the pages; tests/test_pages.py defines it.
GIVEN = """
from typing import Any
import kazoo.recipe.lock
import leaselock
order: int = 5
client = leaselock.Client("memory://pages")
engine: Any = None
async_engine: Any = None
def charge(order: int, fence: int) -> None: ...
"""
FRAGMENTS = ("how-to/optimistic.md", "stores/")
# These arguments of other packages are refused, and the page says so.
REFUSED = {"how-to/migrate.md": "blocking_timeout"}


def write_programs(folder: Path) -> dict[str, Path]:
    """Write the code of each page into a folder of its own; return the folders, by page."""
    folders = {}
    pages = [ROOT / "README.md"]
    pages += [page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md"))]
    for page in pages:
        blocks = BLOCK.findall(page.read_text("utf-8"))
        if not blocks:
            continue
        name = str(page.relative_to(ROOT)).removeprefix("docs/")
        own = folder / re.sub(r"\W", "_", name)
        own.mkdir()
        rest = [GIVEN] if name.startswith(FRAGMENTS) else []
        for block in blocks:
            if named := NAME.match(block):
                path = own / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block, "utf-8")
            else:
                rest.append(block)
        (own / "blocks.py").write_text("\n".join(rest), "utf-8")
        folders[name] = own
    return folders


def unexpected(name: str, lines: list[str]) -> list[str]:
    """The errors of a page but for those that it is about."""
    return [line for line in lines if REFUSED.get(name, "\n") not in line]


def test_pyright_finds_no_error_in_the_pages_and_the_examples(tmp_path: Path) -> None:
    folders = write_programs(tmp_path)
    roots = {str(folder): name for name, folder in folders.items()}
    environments = [{"root": root, "extraPaths": [str(SOURCE)]} for root in roots]
    settings = {
        "include": [*roots, str(ROOT / "examples")],
        "extraPaths": [str(SOURCE)],
        "executionEnvironments": environments,
        "typeCheckingMode": "standard",
        # Packages without types of their own are not searched for them, as mypy does not.
        "useLibraryCodeForTypes": False,
        "reportMissingModuleSource": "none",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", ".", "--outputjson"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] > len(folders)
    errors = []
    for found in report["generalDiagnostics"]:
        if found["severity"] == "error":
            root = next((root for root in roots if found["file"].startswith(f"{root}/")), "")
            where = f"{found['file']}:{found['range']['start']['line'] + 1}"
            errors += unexpected(roots.get(root, ""), [f"{where}: {found['message']}"])
    assert errors == []
