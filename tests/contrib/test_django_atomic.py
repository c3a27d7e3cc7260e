"""A lock that is released before the commit loses updates: acquiring inside `atomic` is refused."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contrib.conftest import Programs

SETTINGS = """
    import os
    SECRET_KEY, USE_TZ, ROOT_URLCONF = "of a test", True, "shop"
    INSTALLED_APPS = ["leaselock.contrib.django"]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.sqlite3",
                             "ATOMIC_REQUESTS": True, "OPTIONS": {"timeout": 60}}}
    LEASELOCK = {"store": "sqlite:///locks.db"}
    ALLOWED_HOSTS = ["*"]
"""
SHOP = """
    import django
    django.setup()
    from django.db import connection, transaction
    from django.http import HttpResponse
    from django.test import Client, TestCase, TransactionTestCase
    from django.urls import path
    from leaselock.contrib.django import client, guard, lock_until_commit

    def plain(request):
        with client().lock("stock"):
            return HttpResponse("sold")

    @guard("stock")
    def guarded(request):
        return HttpResponse("sold")

    def until_commit(request):
        lease = lock_until_commit("stock", timeout=60)
        with connection.cursor() as cursor:
            left = cursor.execute("SELECT pieces FROM stock").fetchone()[0]
            cursor.execute("UPDATE stock SET pieces = %s", [left + 1])
        return HttpResponse("sold")

    @transaction.non_atomic_requests
    def outside(request):
        with client().lock("stock", timeout=60), transaction.atomic():
            with connection.cursor() as cursor:
                left = cursor.execute("SELECT pieces FROM stock").fetchone()[0]
                cursor.execute("UPDATE stock SET pieces = %s", [left + 1])
        return HttpResponse("sold")

    views = (plain, guarded, until_commit, outside)
    urlpatterns = [path(view.__name__, view) for view in views]
"""
SERVED = """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    import shop
    from django.db import connection, connections
    from django.test import Client
    from leaselock.contrib.django import client

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE stock (pieces INT)")
        cursor.execute("INSERT INTO stock VALUES (0)")

    def request(view):
        try:
            return Client().get(f"/{view}").status_code
        except RuntimeError as error:
            return "ATOMIC_REQUESTS" in str(error) and "lock_until_commit" in str(error)
        finally:
            connections.close_all()

    assert [request(view) for view in ("plain", "guarded")] == [True, True]
    assert not client().lock("stock").locked()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(request, ["until_commit", "outside"] * 20)) == {200}
    with connection.cursor() as cursor:
        print(*cursor.execute("SELECT pieces FROM stock").fetchone())
"""


def test_no_update_is_lost_in_views_under_atomic_requests(programs: Programs) -> None:
    programs.write("settings.py", SETTINGS)
    programs.write("shop.py", SHOP)
    programs.write("served.py", SERVED)
    program = programs.start("served", env={"DJANGO_SETTINGS_MODULE": "settings"})
    assert program.ended() == "40\n"


ITS_TESTS = """
    from django.db import transaction
    from django.test import TestCase
    from leaselock.contrib.django import client, lock_until_commit

    class Sales(TestCase):
        def test_the_blocks_of_the_test_do_not_count(self):
            with client().lock("stock"):
                pass

        def test_a_block_of_the_program_counts(self):
            with transaction.atomic(), self.assertRaises(RuntimeError):
                client().lock("stock").acquire()

        def test_a_callback_that_the_test_calls_releases(self):
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                lock_until_commit("stock")
            self.assertFalse(client().lock("stock").locked())

        @classmethod
        def tearDownClass(cls):
            super().tearDownClass()
            assert not client().lock("stock").locked()
"""


def test_the_transactions_of_a_test_case_do_not_count(programs: Programs) -> None:
    programs.write("settings.py", SETTINGS)
    programs.write("shop.py", "urlpatterns = []")
    programs.write("test_sales.py", ITS_TESTS)
    env = {"DJANGO_SETTINGS_MODULE": "settings"}
    assert "Ran 3 tests" in programs.start("django", "test", env=env).ended()


ENDS = """
    import gc
    import django
    django.setup()
    from django.db import connection, transaction
    from leaselock import LeaseLost
    from leaselock.contrib.django import client, lock_until_commit

    stock = client().lock("stock")

    with transaction.atomic():
        lease = lock_until_commit("stock", timeout=0)
        with transaction.atomic():
            lock_until_commit("other")
        assert not lease.lost and stock.locked()
        with client().lock("stock"):  # nested in it
            pass
    assert not stock.locked() and not client().lock("other").locked()

    try:
        with transaction.atomic():
            lock_until_commit("stock", timeout=0)
            raise KeyError
    except KeyError:
        assert not stock.locked()

    with transaction.atomic():
        try:
            with transaction.atomic():
                lock_until_commit("stock", timeout=0)
                raise KeyError
        except KeyError:
            assert not stock.locked()

    try:
        with transaction.atomic():
            lock_until_commit("stock", timeout=0)
            connection.close()
    except Exception:
        pass
    assert not stock.locked()

    try:
        with transaction.atomic():
            lock_until_commit("stock", timeout=0)
            client().break_lock("stock")
    except LeaseLost:
        print("lost")

    try:
        lock_until_commit("stock")
    except RuntimeError as error:
        print(error)
    client().close()
"""


def test_a_lock_until_commit_ends_with_its_transaction(programs: Programs) -> None:
    """By a commit, a rollback, the rollback of a savepoint, or a connection that is closed."""
    programs.write("settings.py", SETTINGS)
    programs.write("shop.py", "urlpatterns = []")
    programs.write("ends.py", ENDS)
    program = programs.start("ends", env={"DJANGO_SETTINGS_MODULE": "settings"})
    needs = "lock_until_commit needs a transaction: call it inside atomic"
    assert program.ended() == f"lost\n{needs}\n"


ACQUIRES: dict[str, Callable[[leaselock.Client], object]] = {
    "acquire": lambda client: client.lock("a").acquire(),
    "try_acquire": lambda client: client.lock("a").try_acquire(),
    "with": lambda client: client.lock("a").__enter__(),
    "read": lambda client: client.rwlock("a").read.acquire(),
    "semaphore": lambda client: client.semaphore("a", 2).acquire(),
    "lock_all": lambda client: client.lock_all(["a", "b"]).acquire(),
    "once": lambda client: client.once("a", every=5),
    "election": lambda client: client.election("a").lead().__enter__(),
}


@pytest.mark.parametrize("how", ACQUIRES)
def test_each_way_to_acquire_is_checked(how: str) -> None:
    def refuse() -> None:
        raise RuntimeError("not here")

    with leaselock.Client(f"memory://{uuid.uuid4().hex}") as client:
        client._core.check_acquires(refuse)
        with pytest.raises(RuntimeError, match="not here"):
            ACQUIRES[how](client)
        assert client.locks() == []
