"""python -m verification.chaos.tasks [--seconds S] [--tasks N] [STORE ...]

Many tasks of one event loop deposit through one synchronous client, on private servers. Each task
owns what it acquires, so a deposit is lost only if two tasks hold the lock at once. A task that
would have to wait for another one of its loop gets WouldDeadlock, and tries again later.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from verification.chaos.stores import STORES

import leaselock

TASKS = 200


class Account:
    """An account that loses deposits if two tasks read it at once."""

    def __init__(self) -> None:
        self.balance = self.deposits = self.refused = self.lost = 0

    async def deposit(self, client: leaselock.Client) -> None:
        """Add one, with a suspension between the read and the write."""
        try:
            with client.lock("account", lease=10.0) as lease:
                read = self.balance
                await asyncio.sleep(0)
                lease.ensure()
                self.balance = read + 1
                self.deposits += 1
        except leaselock.WouldDeadlock:
            self.refused += 1
        except leaselock.LeaseLost:
            # A loop with this many tasks may keep the interpreter from the renewer for too long.
            self.lost += 1


class Figures(NamedTuple):
    """What one store has shown."""

    store: str
    tasks: int
    deposits: int
    balance: int
    refused: int
    lost: int

    def __str__(self) -> str:
        return (
            f"| {self.store} | {self.tasks} | {self.deposits} | {self.balance} | {self.refused} "
            f"| {self.lost} |"
        )


async def deposits(client: leaselock.Client, tasks: int, seconds: float) -> Account:
    """Let *tasks* tasks deposit for *seconds*."""
    account, deadline = Account(), time.monotonic() + seconds

    async def user() -> None:
        while time.monotonic() < deadline:
            await account.deposit(client)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(user())
    return account


def measure(name: str, tasks: int, seconds: float) -> Figures:
    """Deposit on one store."""
    with tempfile.TemporaryDirectory(prefix="tasks-") as folder, ExitStack() as stack:
        url = STORES[name](stack).fresh(Path(folder))
        with leaselock.Client(url) as client:
            account = asyncio.run(deposits(client, tasks, seconds))
    return Figures(name, tasks, account.deposits, account.balance, account.refused, account.lost)


def main(arguments: list[str] | None = None) -> int:
    """Run, and print a table; return 1 if a deposit was lost, or none was made."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos.tasks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each store")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    words: Any = parser.parse_args(arguments)
    print("| store | tasks | deposits | balance | refused | lost |")
    print("| - | - | - | - | - | - |")
    failed = False
    for name in words.stores or STORES:
        figures = measure(name, words.tasks, words.seconds)
        print(figures, flush=True)
        failed = failed or not figures.deposits or figures.deposits != figures.balance
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
