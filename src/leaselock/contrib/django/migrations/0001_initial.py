"""The admin page's model, which has no table, and the tables of the locks.

The tables are made if the setting LEASELOCK names a database of the project, and it is this one.
They are those of `leaselock setup`, so nothing is done where that has been run.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import migrations, models

from leaselock import Client
from leaselock.contrib.django import options


def make_tables(_apps: Any, schema_editor: Any) -> None:
    """Make the tables, by the connection that migrates."""
    alias = getattr(settings, "LEASELOCK", {}).get("database")
    if alias != schema_editor.connection.alias:
        return
    with Client(**options()) as client:
        statements = client.setup(dry_run=True)
    for statement in statements:
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    """Run by `migrate`. Undoing it leaves the tables: locks may be held in them."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Lock",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
            ],
            options={
                "permissions": (("break_lock", "Can break locks by force"),),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        # MySQL cannot roll back a CREATE TABLE; PostgreSQL runs the migration in a transaction.
        migrations.RunPython(make_tables, migrations.RunPython.noop, atomic=False),
    )
