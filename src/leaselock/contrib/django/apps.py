"""The application `leaselock.contrib.django`."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class LeaselockConfig(AppConfig):
    """Locks, their commands and their admin page."""

    name = "leaselock.contrib.django"
    label = "leaselock"
    verbose_name = "Locks"
    default = True
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have each `migrate` make the tables of locks, so that its migrations may use locks."""
        from leaselock.contrib.django import make_tables

        pre_migrate.connect(make_tables, sender=self)
