"""No file outside the tests contains a secret, and URLs are shown without theirs.

A false positive is marked by `pragma: allowlist secret` in a comment at the end of its line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings

pytestmark = [pytest.mark.long, pytest.mark.heavy]

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", "benchmarks", "docs", "examples", "scripts", "src")
# The compressed bytes of pictures cause false positives.
PICTURES = (".png", ".svg")


def files() -> list[Path]:
    """Return all source files outside the tests."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found = [path for path in (*ROOT.iterdir(), *below) if path.is_file()]
    built = {"__pycache__", "_build"}
    ours = [path for path in found if not built & {*path.parts} and path.name != ".git"]
    return [path for path in ours if path.suffix not in PICTURES and ".coverage" not in path.name]


def secrets_in(paths: list[Path]) -> list[str]:
    """Return the places of possible secrets, without their text."""
    with default_settings():
        found = [secret for path in paths for secret in scan_file(str(path))]
    return [f"{secret.filename}:{secret.line_number}: {secret.type}" for secret in found]


def test_no_file_contains_a_secret() -> None:
    assert len(files()) > 200
    assert secrets_in(files()) == []


@pytest.mark.parametrize(
    "line",
    [
        'password = "hunter2-hunter3"',
        'URL = "redis://me:hunter2hunter3@host"',
        "aws = 'AKIA" + "Z3QX7JPL5MNO2RST'",
        "-----BEGIN RSA PRIVATE " + "KEY-----",
    ],
)
def test_a_planted_secret_is_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.py"
    file.write_text(f"{line}\n")
    assert secrets_in([file])
