"""A scheduler in a FastAPI application with four workers: one of them runs the due jobs.

    LEASELOCK_URL=redis://localhost:6379/0 uvicorn --workers 4 fastapi_scheduler:app

Each worker campaigns while it serves requests. When the one that leads is stopped, another one
leads within a hand-off; when it is killed, at the end of its lease.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fastapi import FastAPI

import leaselock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JOBS = os.environ.get("JOBS_FILE", "/dev/null")


def run_due_jobs(lease: leaselock.AsyncLease) -> None:
    """The work of the leader: here, a line with its process and its term."""
    with open(JOBS, "a") as file:
        file.write(f"{os.getpid()} {lease.token}\n")


async def schedule(lease: leaselock.AsyncLease) -> None:
    """Lead: it is cancelled when the lease is lost."""
    while True:
        run_due_jobs(lease)
        await asyncio.sleep(0.2)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Campaign while the application runs."""
    async with leaselock.AsyncClient(label=f"worker {os.getpid()}") as client:
        app.state.election = client.election("scheduler")
        await app.state.election.leader()  # a worker does not start without its store
        campaign = asyncio.create_task(app.state.election.run(schedule))
        yield
        campaign.cancel()
        with suppress(asyncio.CancelledError):
            await campaign


app = FastAPI(lifespan=lifespan)


@app.get("/leader")
async def leader() -> dict[str, object]:
    """Who leads, since when, in which term."""
    holder = await app.state.election.leader()
    return {"leader": holder and {"pid": holder.pid, "since": holder.since, "term": holder.token}}
