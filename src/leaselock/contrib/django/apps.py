"""The application `leaselock.contrib.django`."""

from __future__ import annotations

from django.apps import AppConfig


class LeaselockConfig(AppConfig):
    """Locks, their commands and their admin page."""

    name = "leaselock.contrib.django"
    label = "leaselock"
    verbose_name = "Locks"
    default = True
    default_auto_field = "django.db.models.BigAutoField"
