"""The commands of the page on Sentinel and Cluster, in its order, on free ports of this machine."""

from __future__ import annotations

import os
import random
import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import HOST, program
from tests.test_pages import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "sentinel-and-cluster.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.M | re.S)
# The nodes of a cluster talk to each other on ports that are higher by this.
CLUSTER_BUS = 10_000


def free_hundreds() -> tuple[str, str]:
    """Return two numbers to write instead of 71 and 72: the ports that begin so are free."""
    for first in random.SystemRandom().sample(range(20, 50), 30):
        ports = [100 * first + n for n in (1, 2, 11, 12, 13, *range(101, 107))]
        with ExitStack() as opened:
            try:
                for port in (*ports, *(port + CLUSTER_BUS for port in ports)):
                    taken = opened.enter_context(socket.socket())
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    taken.bind((HOST, port))
            except OSError:
                continue
            return str(first), str(first + 1)
    raise AssertionError("no free ports")


@pytest.fixture
def blocks() -> list[str]:
    """The blocks of the page."""
    first, second = free_hundreds()
    text = re.sub(r"\b71(?=\d\d|\d\$)", first, PAGE.read_text("utf-8"))
    return BLOCK.findall(re.sub(r"\b72(?=\d\d|\d\$)", second, text))


@pytest.fixture
def shell(tmp_path: Path, blocks: list[str]) -> Iterator[Shell]:
    """One shell for all blocks. The last one stops the servers, whatever happened."""
    program("redis-server")
    program("redis-sentinel")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = Shell(tmp_path, {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"})
    yield shell
    shell.run(blocks[-1])
    shell.close()


def test_the_commands_of_the_page(shell: Shell, blocks: list[str]) -> None:
    start, doctor, failover, cluster, _ = blocks
    shell.run(start)
    printed = shell.run(doctor)
    assert "a master" in printed
    assert "fail " not in printed
    printed = shell.run(failover)
    heads = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert heads == ["NAME", "report", "ended"], printed
    printed = shell.run(cluster)
    assert "[OK] All 16384 slots covered." in printed
    assert "fail " not in printed
    assert [line.split()[0] for line in printed.splitlines()[-2:]] == ["a", "b"], printed
