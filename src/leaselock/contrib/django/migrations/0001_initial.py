"""The admin page's model, which has no table. No migration makes the tables of locks: `migrate`
does that each time (`LeaselockConfig.ready`), because the setting may name another database later.
"""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Run by `migrate`."""

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
    )
