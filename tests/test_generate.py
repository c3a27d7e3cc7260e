"""The interface for threads is what scripts/generate makes of the one for asyncio."""

from __future__ import annotations

import ast
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "generate"
AIO = (ROOT / "src/leaselock/_api/aio.py").read_text()


def script() -> Any:
    # A file without an extension is imported by a loader that is named.
    spec = spec_from_loader("generate", SourceFileLoader("generate", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = script()


def generated(old: str, new: str) -> str:
    """What is made of the asyncio text with a change."""
    assert old in AIO
    text: str = GENERATE.generate(AIO.replace(old, new))
    ast.parse(text)
    return text


def test_an_edited_file_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    edited = tmp_path / "threads.py"
    edited.write_text((ROOT / GENERATE.TARGET).read_text() + "\n# by hand\n")
    monkeypatch.setattr(GENERATE, "TARGET", str(edited))
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    with pytest.raises(SystemExit, match="make format"):
        GENERATE.main()
    monkeypatch.setattr(sys, "argv", ["generate"])
    GENERATE.main()
    assert edited.read_text() == (ROOT / "src/leaselock/_api/threads.py").read_text()


METHOD = "    async def close(self) -> None:\n"


REFUSED = {
    "prose that awaits": (METHOD, f'    """Then await it."""\n\n{METHOD}', "'await' is not true"),
    "prose of coroutines": (METHOD, f"    # A coroutine.\n{METHOD}", "'coroutine' is not true"),
    "a sentence that changed": ("On loss the function", "At a loss the function", "0 times"),
    "a sentence that was repeated": (
        METHOD,
        f"    # {next(iter(GENERATE.SENTENCES))}\n{METHOD}",
        "occurs 2 times",
    ),
    "a word that is gone": ("StopAsyncIteration", "StopIteration", "0 times.*StopAsyncIteration"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_tables_do_not_cover_is_refused(case: str) -> None:
    old, new, message = REFUSED[case]
    with pytest.raises(GENERATE.CannotGenerateError, match=message):
        generated(old, new)
