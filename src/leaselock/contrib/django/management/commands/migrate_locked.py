"""`manage.py migrate_locked`: `migrate`, by one process of a deployment at a time.

The lock is in the store of the setting LEASELOCK, so it is held whatever the migrations do to the
database: a commit, CREATE INDEX CONCURRENTLY, or a pooler between. If the store is a database of
the project, its tables are made before: the first migration of a deployment is locked, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from leaselock import AcquireTimeout
from leaselock.contrib.django import client, make_tables

if TYPE_CHECKING:
    import argparse


class Command(migrate.Command):
    """Wait for the lock, then migrate. Who waited finds nothing to do."""

    help = "Updates the schema as migrate does, by one process at a time."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of migrate, and the longest wait."""
        super().add_arguments(parser)
        wait = "seconds to wait for another process that migrates (900)"
        parser.add_argument("--lock-timeout", type=float, default=900.0, help=wait)

    def handle(self, *args: Any, lock_timeout: float, **options: Any) -> Any:
        """Run `migrate` under the lock of its database."""
        make_tables()
        lock = client().lock(f"migrate:{options['database']}", timeout=lock_timeout)
        try:
            lease = lock.try_acquire()
            waited = lease is None
            if lease is None:
                self._say(f"Waiting for another process that migrates: {lock.holder()}", options)
                lease = lock.acquire()
        except AcquireTimeout as error:
            raise CommandError(str(error)) from error
        with lease:
            if waited and not self._pending(options["database"]):
                self._say("Skipped: the other process has migrated.", options)
            return super().handle(*args, **options)

    def _say(self, text: str, options: dict[str, Any]) -> None:
        if options["verbosity"] > 0:
            self.stdout.write(text)

    def _pending(self, database: str) -> bool:
        """Whether there are migrations to apply."""
        executor = MigrationExecutor(connections[database])
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
