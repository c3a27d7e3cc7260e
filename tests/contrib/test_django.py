"""A Django project: two processes that migrate, commands, and the admin page."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.conf import settings
from prometheus_client import REGISTRY
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from tests.contrib.metadata import write_metadata

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contrib.conftest import Programs

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "pg": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "HOST": "db",
        "PORT": "5433",
        "USER": "app",
        "PASSWORD": "a/b",  # pragma: allowlist secret
    },
}
SETTINGS = """
    INSTALLED_APPS = [
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
        "django.contrib.messages", "django.contrib.sessions", "leaselock.contrib.django", "shop",
    ]
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    TEMPLATES = [{
        "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.sqlite3"}}
    LEASELOCK = {"store": "sqlite:///locks.db"}
    ROOT_URLCONF = "urls"
    SECRET_KEY = "of a test"
    ALLOWED_HOSTS = ["*"]
    USE_TZ = True
"""
URLS = """
    from django.contrib import admin
    from django.urls import path

    urlpatterns = [path("admin/", admin.site.urls)]
"""
# The migration waits until the other process waits for the lock.
MIGRATION = """
    import os, time
    from django.db import migrations
    from leaselock.contrib.django import client

    def wait(apps, schema_editor):
        while os.environ.get("TOGETHER") and not client().lock("migrate:default").waiters():
            time.sleep(0.02)
        with open("migrated", "a") as file:
            file.write(f"{os.getpid()}\\n")

    class Migration(migrations.Migration):
        operations = [migrations.RunPython(wait)]
"""
COMMAND = """
    from django.core.management.base import BaseCommand
    from leaselock.contrib.django import client, guard

    class Command(BaseCommand):
        def add_arguments(self, parser):
            parser.add_argument("--held", action="store_true")

        @guard("report", busy="skip")
        def report(self):
            self.stdout.write("reported")

        def handle(self, held, **options):
            if held:
                with client().lock("report", owner="lock"):
                    self.report()
            self.report()
"""
ADMIN = """
    import django, re
    django.setup()
    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command
    from django.test import Client
    from leaselock.contrib.django import client

    root = User.objects.create_superuser("root", password="-")
    viewer = User.objects.create_user("viewer", password="-", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_lock"))
    page = "/admin/leaselock/lock/"
    web, read, stranger = Client(), Client(), Client()
    web.force_login(root)
    read.force_login(viewer)
    assert "No locks." in web.get(page).content.decode()
    assert stranger.get(page).status_code == 302

    lease = client().lock("order:<5>", label="a label").acquire()
    shown = web.get(page).content.decode()
    assert "order:&lt;5&gt;" in shown and "a label" in shown and str(lease.token) in shown, shown
    assert ">Break<" in shown and ">Break<" not in read.get(page).content.decode()

    form = {"name": lease.name, "token": lease.token}
    assert read.post(page, form).status_code == 403 and not lease.lost
    assert web.post(page, {"name": lease.name}).status_code == 400
    for token in ("x", "-5", "9" * 30):
        assert web.post(page, {"name": lease.name, "token": token}).status_code == 400
    assert "was broken" not in web.post(page, {**form, "token": 1}, follow=True).content.decode()
    assert client().lock("order:<5>").locked()
    assert "was broken" in web.post(page, form, follow=True).content.decode()
    assert not client().lock("order:<5>").locked()
    assert web.post(page, form, follow=True).status_code == 200
    client().close()
    assert "closed" in web.get(page).content.decode()
    print("the admin page works")
"""


@pytest.fixture
def project(programs: Programs) -> Programs:
    programs.write("settings.py", SETTINGS)
    programs.write("urls.py", URLS)
    programs.write("shop/__init__.py", "")
    programs.write("shop/migrations/__init__.py", "")
    programs.write("shop/migrations/0001_initial.py", MIGRATION)
    programs.write("shop/management/commands/report.py", COMMAND)
    programs.write("admin_page.py", ADMIN)
    return programs


DJANGO = {"DJANGO_SETTINGS_MODULE": "settings"}


@pytest.mark.heavy
def test_two_processes_migrate_and_one_does_it(project: Programs) -> None:
    env = DJANGO | {"TOGETHER": "1"}
    both = [project.start("django", "migrate_locked", env=env) for _ in range(2)]
    printed = sorted(program.ended().count("Applying shop") for program in both)
    assert printed == [0, 1]
    assert len(project.lines("migrated")) == 1
    texts = [program.output() for program in both]
    assert sorted("Waiting for another process that migrates" in text for text in texts) == [0, 1]
    assert sorted("Skipped: the other process has" in text for text in texts) == [0, 1]


@pytest.mark.heavy
def test_commands_of_a_project(project: Programs) -> None:
    def run(*words: str) -> str:
        return project.start("django", *words, env=DJANGO).ended()

    run("migrate", "--verbosity", "0")
    assert "No changes" in run("makemigrations", "--check")
    assert run("report") == "reported\n"
    assert run("report", "--held") == "reported\n"
    assert "one at a time" in run("leaselock", "run", "nightly", "--", "echo", "one at a time")
    assert "nightly" not in run("leaselock", "ls")
    busy = project.start("django", "migrate_locked", "--lock-timeout", "0", env=DJANGO)
    busy.ended()
    with leaselock.Client(project.folder / "locks.db") as client, client.lock("migrate:default"):
        refused = project.start("django", "migrate_locked", "--lock-timeout", "0", env=DJANGO)
        assert refused.process.wait() == 1
        assert "CommandError: could not acquire 'migrate:default'" in refused.output()
    assert "the admin page works" in project.start("admin_page", env=DJANGO).ended()


@pytest.fixture(scope="module")
def configured() -> Iterator[str]:
    """Settings of this process, in which no other test uses Django."""
    url = f"memory://{uuid.uuid4().hex}"
    settings.configure(LEASELOCK={"store": url}, DATABASES=DATABASES)
    yield url
    from leaselock.contrib.django import client

    client().close()


def test_a_function_is_guarded_by_the_client_of_the_settings(configured: str) -> None:
    from leaselock.contrib.django import client, guard

    @guard("order:{order}", busy="skip")
    def charge(order: int) -> str:
        return f"charged {order}"

    assert charge(5) == "charged 5"
    assert client() is client()
    with leaselock.Client(configured) as other, other.lock("order:5"):
        assert charge(5) is None
        assert charge(order=6) == "charged 6"


def test_threads_that_ask_first_at_the_same_time_get_one_client(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.test import override_settings

    import leaselock.contrib.django as integration

    barrier = threading.Barrier(4)

    def made(*words: Any, **options: Any) -> leaselock.Client:
        barrier.wait(30)
        return leaselock.Client(*words, **options)

    monkeypatch.setattr(integration, "Client", made)
    with override_settings(LEASELOCK={"store": f"{configured}-c"}), ThreadPoolExecutor(4) as pool:
        clients = [each.result() for each in [pool.submit(integration.client) for _ in range(4)]]
        assert len(set(map(id, clients))) == 1
        assert clients[0] is integration.client()


def test_the_client_is_instrumented(configured: str) -> None:
    from django.test import override_settings

    from leaselock.contrib.django import client

    seen: list[leaselock.Client] = []
    setting = {"store": f"{configured}-d", "instrument": seen.append}
    with override_settings(LEASELOCK=setting):
        assert [client(), client()] == seen * 2
    by_name = "leaselock.contrib.prometheus.instrument"
    setting = {"store": f"{configured}-e", "instrument": by_name}
    with override_settings(LEASELOCK=setting), client().lock("instrumented:5"):
        assert REGISTRY.get_sample_value("leaselock_held", {"lock": "instrumented"}) == 1


def test_the_client_follows_a_setting_that_is_overridden(configured: str) -> None:
    from django.test import override_settings

    from leaselock.contrib.django import client

    outer = client()
    with outer.lock("order:5"):
        with override_settings(LEASELOCK={"store": f"{configured}-b"}):
            assert client() is not outer
            inner = client()
            assert client() is inner
            with override_settings(LEASELOCK={"store": configured}):
                assert client() is outer
            lease = client().lock("order:5").acquire(timeout=0)
        assert lease.lost
        with pytest.raises(leaselock.ClientClosed):
            inner.lock("order:5").acquire()
        assert client() is outer
        assert outer.lock("order:5").owned()


@pytest.mark.parametrize(
    ("database", "changed", "url"),
    [
        ("pg", {}, "postgresql://app:a%2Fb@db:5433/shop"),  # pragma: allowlist secret
        ("pg", {"HOST": "", "PORT": "", "USER": "", "PASSWORD": ""}, "postgresql:///shop"),
        (
            "pg",
            {"HOST": "/run/pg", "PASSWORD": ""},
            "postgresql://app@/shop?host=%2Frun%2Fpg&port=5433",
        ),
        ("pg", {"HOST": "::1", "PASSWORD": ""}, "postgresql://app@[::1]:5433/shop"),
    ],
)
def test_the_store_is_a_database_of_the_project(
    configured: str, database: str, changed: dict[str, str], url: str
) -> None:
    from django.db import connections
    from django.test import override_settings

    from leaselock.contrib.django import options

    before = dict(connections[database].settings_dict)
    connections[database].settings_dict.update(changed)
    try:
        with override_settings(LEASELOCK={"database": database, "op_timeout": 2.0}):
            assert options() == {"store": url, "op_timeout": 2.0}
            leaselock.Client(**options()).close()
    finally:
        connections[database].settings_dict.update(before)


LOGIN = {"NAME": "shop", "USER": "app", "HOST": "db"}


@pytest.mark.parametrize(
    ("dialect", "options", "query"),
    [
        (
            "postgresql",
            {"sslmode": "verify-full", "sslrootcert": Path("/srv/ca.pem")},
            "?sslmode=verify-full&sslrootcert=%2Fsrv%2Fca.pem",
        ),
        (
            "postgresql",
            {"options": "-c search_path=app", "assume_role": "o w"},
            "?options=-c+search_path%3Dapp+-c+role%3Do%5C+w",
        ),
        ("postgresql", {"pool": True, "isolation_level": 2, "prepare_threshold": 5}, ""),
        ("postgresql", {"service": "shop", "sslmode": None}, "?service=shop"),
        (
            "mysql",
            {"ssl": {"ca": "/ca.pem", "cert": "/cert.pem", "key": "/key.pem"}},
            "?ssl_ca=%2Fca.pem&ssl_cert=%2Fcert.pem&ssl_key=%2Fkey.pem",
        ),
        ("mysql", {"ssl_ca": "/ca.pem", "ssl_verify_identity": True}, "?ssl_ca=%2Fca.pem"),
        ("mysql", {"ssl_mode": "REQUIRED"}, "?ssl=yes"),
        ("mysql", {"ssl_verify_cert": True}, "?ssl=yes"),
        ("mysql", {"ssl_mode": "PREFERRED", "ssl": {}}, ""),
        ("mysql", {"ssl_disabled": True}, "?ssl=no"),
        ("mysql", {"unix_socket": "/run/db.sock"}, "?unix_socket=%2Frun%2Fdb.sock"),
        ("mysql", {"charset": "utf8mb4", "init_command": "SET sql_mode='STRICT_TRANS_TABLES'"}, ""),
    ],
)
def test_locks_connect_with_the_options_of_the_database(
    dialect: str, options: dict[str, Any], query: str
) -> None:
    from leaselock._backends.sql.url import parsed
    from leaselock.contrib.django.databases import url_from

    url = url_from("default", dialect, {**LOGIN, "OPTIONS": options})
    assert url == f"{dialect}://app@db/shop{query}"
    assert parsed(url).database == "shop"


@pytest.mark.parametrize(
    ("dialect", "options", "named"),
    [
        ("postgresql", {"sslmod": "require"}, "sslmod"),
        ("mysql", {"read_default_file": "/etc/my.cnf"}, "read_default_file"),
        ("mysql", {"ssl": {"ca": "/ca.pem", "cipher": "x"}}, "ssl_cipher"),
        ("mysql", {"ssl": True}, "ssl"),
        ("mysql", {"ssl_mode": "SOMETIMES"}, "ssl_mode"),
    ],
)
def test_an_option_that_locks_cannot_have_is_refused(
    dialect: str, options: dict[str, Any], named: str
) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from leaselock.contrib.django.databases import url_from

    with pytest.raises(ImproperlyConfigured, match=f"cannot have the option '{named}' of the"):
        url_from("default", dialect, {**LOGIN, "OPTIONS": options})


def test_a_service_names_the_database() -> None:
    from django.core.exceptions import ImproperlyConfigured

    from leaselock.contrib.django.databases import url_from

    url = url_from("default", "postgresql", {"NAME": "", "OPTIONS": {"service": "shop"}})
    assert url == "postgresql:///?service=shop"
    leaselock.Client(url).close()
    with pytest.raises(ImproperlyConfigured, match="'default' has no NAME"):
        url_from("default", "mysql", {"NAME": ""})


def test_a_database_that_is_no_store_is_refused(configured: str) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    from leaselock.contrib.django import client

    for setting in ({"database": "default"}, {"database": "pg", "store": configured}):
        with override_settings(LEASELOCK=setting), pytest.raises(ImproperlyConfigured):
            client()


# The settings of a project whose locks are in its own database, and its tests.
OWN_DATABASE = """
    from settings import *

    DATABASES = {"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "HOST": "127.0.0.1",
        "USER": "leaselock", "PORT": "%s", "OPTIONS": {"options": "-c search_path=own,public"},
    }}
    LEASELOCK = {"database": "default"}
"""
ELSEWHERE = """
    LEASELOCK = {"store": "sqlite:///locks.db"}
"""
ITS_TESTS = """
    import pytest
    from leaselock.contrib.django import client
    from django.db import connection

    @pytest.mark.django_db
    def test_locks_are_in_the_test_database():
        assert connection.settings_dict["NAME"] == "test_postgres"
        with client().lock("order:5") as lease:
            assert "test_postgres" in client().url

    def test_a_fixture_of_settings(settings, lock_url):
        settings.LEASELOCK = {"store": lock_url}
        with client().lock("order:5"):
            assert client().url == lock_url

    def test_afterwards(settings):
        assert settings.LEASELOCK == {"database": "default"}
"""


@pytest.mark.heavy
def test_migrate_makes_the_tables_of_the_store(project: Programs) -> None:
    with Postgres() as server:
        project.write("own_database.py", OWN_DATABASE % server.port)
        project.write("test_project.py", ITS_TESTS)
        env = {"DJANGO_SETTINGS_MODULE": "own_database"}

        def run(*words: str) -> str:
            return project.start(*words, env=env).ended()

        with psycopg.connect(server.url, autocommit=True) as database:
            database.execute("CREATE SCHEMA own")
        # The project has migrated before, with another store.
        project.write("elsewhere.py", OWN_DATABASE % server.port + ELSEWHERE)
        there = {"DJANGO_SETTINGS_MODULE": "elsewhere"}
        project.start("django", "migrate", "--verbosity", "0", env=there).ended()
        assert "leaselock_fact" in run("django", "leaselock", "setup", "--print")
        assert "No migrations to apply" in run("django", "migrate")
        assert "leaselock_fact" not in run("django", "leaselock", "setup", "--print")
        assert "No changes" in run("django", "makemigrations", "--check")
        own = f"{server.url}?options=-c%20search_path%3Down,public"
        with leaselock.Client(own) as client, client.lock("report"):
            assert "report" in run("django", "leaselock", "ls")
        run("django", "migrate", "leaselock", "zero", "--verbosity", "0")
        run("django", "migrate", "--verbosity", "0")
        write_metadata(project.folder)
        for words in ((), ("--no-migrations",)):
            assert "3 passed" in run("pytest", "-q", "test_project.py", *words)


ONE_TEST = """
    from django.test import TestCase
    from leaselock.contrib.django import client

    class Orders(TestCase):
        def test_a_lock(self):
            with client().lock("order:5"):
                pass
"""


@pytest.mark.heavy
def test_a_passing_test_ends_well_with_the_locks_in_its_database(project: Programs) -> None:
    """The test database is dropped, by either runner, though the client is open."""
    with Postgres() as server:
        project.write("own_database.py", OWN_DATABASE % server.port)
        project.write("test_orders.py", ONE_TEST)
        write_metadata(project.folder)
        env = {"DJANGO_SETTINGS_MODULE": "own_database"}
        with psycopg.connect(server.url, autocommit=True) as database:
            database.execute("ALTER ROLE leaselock SET search_path = public")
            assert "OK" in project.start("django", "test", "-v", "0", env=env).ended()
            assert "1 passed" in project.start("pytest", "-q", "test_orders.py", env=env).ended()
            names = database.execute("SELECT datname FROM pg_database").fetchall()
            assert "test_postgres" not in [name for (name,) in names]


@pytest.mark.heavy
def test_the_first_migration_is_locked_in_the_database_that_it_migrates(project: Programs) -> None:
    with Postgres() as server:
        project.write("own_database.py", OWN_DATABASE % server.port)
        env = {"DJANGO_SETTINGS_MODULE": "own_database", "TOGETHER": "1"}
        with psycopg.connect(server.url, autocommit=True) as database:
            database.execute("CREATE SCHEMA own")
        both = [project.start("django", "migrate_locked", env=env) for _ in range(2)]
        printed = sorted(program.ended().count("Applying shop") for program in both)
        assert printed == [0, 1]


REDIS = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ({}, None),
        ({"op_timeout": 2.0}, None),
        ({"store": REDIS}, REDIS),
        ({"store": REDIS, "prefix": "app:"}, f"{REDIS}?prefix=app%3A"),
        ({"store": REDIS, "prefix": ""}, f"{REDIS}?prefix="),
        ({"store": f"{REDIS}?prefix=a", "prefix": "b"}, f"{REDIS}?prefix=a"),
        ({"store": REDIS, "protocol": "string"}, f"{REDIS}?protocol=string"),
        ({"store": Path("/srv/a b.db")}, "sqlite:////srv/a%20b.db"),
        (
            {"store": [f"redis://{host}:1/0" for host in "abc"], "prefix": "app:"},
            ",".join(f"redis://{host}:1/0?prefix=app%3A" for host in "abc"),
        ),
    ],
)
def test_commands_use_the_locks_of_the_settings(
    setting: dict[str, Any], url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leaselock.contrib.django.management.commands.leaselock import url_of

    monkeypatch.delenv("LEASELOCK_URL", raising=False)
    assert url_of(setting) == url
    if url is not None:
        leaselock.Client(url).close()


def test_the_prefix_of_the_settings_counts_for_the_store_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from leaselock.contrib.django.management.commands.leaselock import url_of

    monkeypatch.setenv("LEASELOCK_URL", REDIS)
    assert url_of({"prefix": "app:"}) == f"{REDIS}?prefix=app%3A"


def test_commands_refuse_a_store_without_a_url() -> None:
    from django.core.management.base import CommandError

    from leaselock.contrib.django.management.commands.leaselock import url_of

    with pytest.raises(CommandError, match="the setting LEASELOCK has a Redis"):
        url_of({"store": redis.Redis()})


@pytest.mark.heavy
def test_migrate_makes_the_tables_in_mariadb(project: Programs) -> None:
    with MariaDB() as server:
        parts = urlsplit(server.url)
        name = {"NAME": parts.path[1:], "HOST": parts.hostname, "PORT": str(parts.port)}
        login = {"USER": parts.username or "", "PASSWORD": parts.password or ""}
        database = {"ENGINE": "django.db.backends.mysql", **name, **login}
        text = "import pymysql; pymysql.install_as_MySQLdb()\nfrom settings import *\n"
        text += f"DATABASES = {{'default': {database!r}}}\nLEASELOCK = {{'database': 'default'}}\n"
        project.write("own_database.py", text)
        env = {"DJANGO_SETTINGS_MODULE": "own_database"}
        for words in (["migrate", "--verbosity", "0"], ["leaselock", "setup", "--print"]):
            printed = project.start("django", *words, env=env).ended()
        assert "leaselock_fact" not in printed
        with leaselock.Client(server.url) as client, client.lock("report"):
            assert "report" in project.start("django", "leaselock", "ls", env=env).ended()
