"""No table: the locks are in the store of the setting LEASELOCK. The admin page needs a model."""

from __future__ import annotations

from django.db import models


class Lock(models.Model):
    """A lock that is held or waited for."""

    class Meta:
        """No table, and no right but to view and to break."""

        managed = False
        default_permissions = ("view",)
        permissions = (("break_lock", "Can break locks by force"),)
