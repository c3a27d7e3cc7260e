"""The commands of docs/how-to/install.md install a program that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Packages are fetched from the package index.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```sh\n# (pipx|a host).*\n((?:.*\n)*?)```$", re.M)
COMMANDS = dict(BLOCK.findall((ROOT / "docs" / "how-to" / "install.md").read_text("utf-8")))


def run_script(script: str, folder: Path) -> None:
    """Run commands of the page in the checkout, with everything that they write in *folder*."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "HOME": str(folder),
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PATH": f"{folder / 'tools' / 'bin'}:{os.environ['PATH']}",
    }
    (folder / "bin").mkdir()
    command = ["bash", "-euc", script]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def check_command(folder: Path) -> None:
    """The installed command runs, with what the extras bring."""
    program = folder / "bin" / "leaselock"
    url = ["--url", f"sqlite:///{folder}/locks.db"]
    for arguments in (["version"], ["run", *url, "hello", "--", "true"], ["web", "--help"]):
        subprocess.run([program, *arguments], cwd=folder, check=True, timeout=60)
    python = program.resolve().parent / "python"
    subprocess.run([python, "-c", "import redis, textual, starlette"], cwd=folder, check=True)


def test_pipx_installs_the_command(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "tools"], check=True)
    subprocess.run([tmp_path / "tools" / "bin" / "pip", "install", "-q", "pipx"], check=True)
    run_script(COMMANDS["pipx"], tmp_path)
    check_command(tmp_path)


def test_a_virtual_environment_in_opt(tmp_path: Path) -> None:
    script = COMMANDS["a host"].replace("/opt", str(tmp_path / "opt"))
    run_script(script.replace("/usr/local/bin", str(tmp_path / "bin")), tmp_path)
    check_command(tmp_path)
