"""`manage.py migrate_locked` that is killed in a migration.

The README beside this file says what these tests show.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Programs

pytestmark = pytest.mark.nightly

SETTINGS = """
    import os

    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.sqlite3"}}
    INSTALLED_APPS = ["leaselock.contrib.django", "shop"]
    LEASELOCK = {"store": os.environ["STORE"]}
    SECRET_KEY = "of a test"
    USE_TZ = True
"""
# It waits for a file that is never there, in the first process.
MIGRATION = """
    import os, time
    from django.db import migrations

    def wait(apps, schema_editor):
        first = not os.path.exists("events")
        with open("events", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while first:
            time.sleep(0.05)

    class Migration(migrations.Migration):
        operations = [migrations.RunPython(wait)]
"""


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_another_process_migrates_when_the_first_one_is_killed(
    programs: Programs, redis: Redis, store: str
) -> None:
    """On SQLite at once, on Redis when its lease has ended; nothing of it is left."""
    url = redis.url if store == "redis" else f"sqlite:///{programs.folder}/locks.db"
    env = {"DJANGO_SETTINGS_MODULE": "settings", "STORE": url}
    programs.write("settings.py", SETTINGS)
    programs.write("shop/__init__.py", "")
    programs.write("shop/migrations/__init__.py", "")
    programs.write("shop/migrations/0001_initial.py", MIGRATION)
    first = programs.start("django", "migrate_locked", env=env)
    programs.wait_for_lines("events", 1)
    second = programs.start("django", "migrate_locked", env=env)
    with leaselock.Client(url) as client:
        lock = client.lock("migrate:default")
        eventually(lambda: bool(lock.waiters()) or second.process.poll() is not None, 300.0)
        os.kill(first.process.pid, signal.SIGKILL)
        assert "Applying shop.0001_initial... OK" in second.ended()
        assert not lock.locked()
    assert programs.lines("events") == [str(each.process.pid) for each in (first, second)]
    assert "No migrations to apply" in programs.start("django", "migrate_locked", env=env).ended()
