"""A private MariaDB or MySQL: on a free port of 127.0.0.1, its data in a folder of its own.

It is a MySQL if that is the chosen version (`testkit.servers.versions`).

One object is one server, the same port and folder for its whole life, whatever happens to the
process in between.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testkit.servers import versions
from testkit.servers.costs import starting
from testkit.servers.postgres import as_user, owned_folder
from testkit.servers.process import HOST, Process, free_port, program

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without type hints, which mypy is not to miss.
pymysql: Any = import_module("pymysql")
STARTS = 5
NO_SUCH_THREAD = 1094
# Its only user is root@localhost, which without names is no user of 127.0.0.1.
ROOT_OF_MYSQL = f"""CREATE USER root@'{HOST}';
GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;
"""
SETTINGS = {
    "bind-address": HOST,
    "max-connections": "300",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "32M",
    "skip-name-resolve": "on",
}


class MariaDB:
    """One server; *settings* are as in my.cnf."""

    def __init__(self, **settings: str) -> None:
        mysql = versions.program("mysqld")
        self.is_mysql = mysql is not None
        self.server = mysql or program("mariadbd", "/usr/sbin")
        self.folder = owned_folder("mariadb-", "mysql")
        self.settings = {**SETTINGS, **settings}
        self.port = 0
        self.process: Process | None = None
        with starting("MariaDB"):
            self._install()
            self.start()
        self.query("CREATE USER IF NOT EXISTS leaselock@'%' IDENTIFIED BY 'secret'")
        self.query("CREATE DATABASE IF NOT EXISTS locks")
        self.query("GRANT ALL ON locks.* TO leaselock@'%'")

    def _install(self) -> None:
        """Make its folder. MariaDB 10.11 fails at that once in a while, for no reason of ours."""
        where = f"--datadir={self.data}"
        command = [self.server, "--no-defaults", where, "--initialize-insecure"]
        if self.is_mysql:
            users = self.folder / "users.sql"
            users.write_text(ROOT_OF_MYSQL)
            command.append(f"--init-file={users}")
        else:
            script = versions.program("mariadb-install-db")
            command = [script or program("mariadb-install-db"), "--no-defaults", where]
            command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            if script is not None:
                command.append(f"--basedir={Path(script).parents[1]}")
        command = [*as_user("mysql"), *command]
        # Not as an option: the script passes that on without quotes.
        env = os.environ | {"TMPDIR": str(self.folder)}
        for _ in range(STARTS):
            done = subprocess.run(
                command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            if not done.returncode:
                return
            shutil.rmtree(self.data, ignore_errors=True)
        raise RuntimeError(f"{command[-3:]} fails: {done.stderr.decode()}")

    @property
    def data(self) -> str:
        """Its folder."""
        return str(self.folder / "data")

    def start(self) -> None:
        """Start it, and wait until it answers; another port if this one was taken meanwhile."""
        first = not self.port
        for _ in range(STARTS):
            self.port = free_port() if first else self.port
            self.process = Process(self._command(), self.folder / "log")
            if self.process.ready(self.answers):
                return
        raise RuntimeError(f"mariadbd does not start: {self.process and self.process.output()}")

    def _command(self) -> list[str]:
        words = [f"--{name}={value}" for name, value in self.settings.items()]
        where = [f"--datadir={self.data}", f"--socket={self.folder}/socket", f"--port={self.port}"]
        where.append(f"--tmpdir={self.folder}")
        where.append(f"--pid-file={self.folder}/pid")
        if self.is_mysql:
            where.append("--mysqlx=OFF")
        return [*as_user("mysql"), self.server, "--no-defaults", *where, *words]

    @property
    def url(self) -> str:
        """A database, as a user without any right beyond it."""
        return f"mysql://leaselock:secret@{HOST}:{self.port}/locks"

    def answers(self) -> bool:
        """Whether it can be asked."""
        try:
            self.query("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows that a statement brings, on a connection of its own, as root."""
        with self.asked() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def transactions(self) -> list[str]:
        """What InnoDB reports of each open transaction, without the last deadlock."""
        # Not information_schema.innodb_trx, which repeats an old answer to frequent queries.
        status: str = self.query("SHOW ENGINE INNODB STATUS")[0][2]
        parts = status.partition("\nTRANSACTIONS\n")[2].split("\n---TRANSACTION ")[1:]
        return [part for part in parts if "ACTIVE" in part.partition("\n")[0]]

    def blocked_transactions(self) -> list[str]:
        """Those of them that wait for a row."""
        return [text for text in self.transactions() if "\nLOCK WAIT " in text]

    def blocked(self) -> set[int]:
        """The numbers of the sessions that wait for a row or a user lock."""
        waiting = self.blocked_transactions()
        numbers = [re.search(r"^(?:MariaDB|MySQL) thread id (\d+)", text, re.M) for text in waiting]
        asleep = "SELECT id FROM information_schema.processlist WHERE state = 'User lock'"
        found = {int(number[1]) for number in numbers if number is not None}
        return found | {int(row[0]) for row in self.query(asleep)}

    def do(self, *statements: str) -> None:
        """Have statements carried out; what they would end may have ended already."""
        with self.asked() as cursor:
            for statement in statements:
                try:
                    cursor.execute(statement)
                except pymysql.err.OperationalError as error:
                    if error.args[0] != NO_SUCH_THREAD:
                        raise

    @contextmanager
    def asked(self) -> Iterator[Any]:
        """A connection for root, for the length of a body."""
        connection = pymysql.connect(host=HOST, port=self.port, user="root", autocommit=True)
        try:
            with connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    def running(self) -> Process:
        """Its process, which has been started."""
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        """SIGKILL."""
        self.running().kill()

    def restart(self) -> None:
        """End it and start it again, with its data."""
        self.running().stop()
        self.start()

    def stop(self) -> None:
        """End it for good."""
        self.running().stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
