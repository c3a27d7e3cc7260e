"""The URL of the store in a file, as containers and systemd pass secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import LEASELOCK, Shell, ended

import leaselock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def secret(shell: Shell) -> Path:
    """A file with the URL; the variable LEASELOCK_URL is unset."""
    del shell.env["LEASELOCK_URL"]
    file = shell.folder / "url"
    file.write_text(f"{shell.url}\n")
    return file


def listed(shell: Shell, *words: str) -> list[str]:
    """Return the names of the locks in the store that the options and the environment name."""
    done = shell.run("ls", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [lock["name"] for lock in json.loads(done.stdout)["locks"]]


def test_variable_and_option_name_the_store(shell: Shell, secret: Path) -> None:
    with leaselock.Client(shell.url) as client, client.lock("a"):
        shell.env["LEASELOCK_URL"] = "memory://"
        assert listed(shell, "--url-file", str(secret)) == ["a"]
        del shell.env["LEASELOCK_URL"]
        shell.env["LEASELOCK_URL_FILE"] = str(secret)
        assert listed(shell) == ["a"]
        shell.env["LEASELOCK_URL_FILE"] = "/nothing"
        assert listed(shell, "--url", shell.url) == ["a"]


def test_two_stores_are_an_error(shell: Shell, secret: Path) -> None:
    shell.env |= {"LEASELOCK_URL": shell.url, "LEASELOCK_URL_FILE": str(secret)}
    done = shell.run("ls")
    assert (done.returncode, done.stdout) == (78, "")
    assert "both LEASELOCK_URL and LEASELOCK_URL_FILE are set" in done.stderr
    assert shell.run("ls", "--url", shell.url, "--url-file", str(secret)).returncode == 64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\n", "it is empty"),
        (b"redis://:secret@\xff/0", "not text in UTF-8"),
        (b"redis://:secret@db/0\nredis://:secret@db/1\n", "more than one line"),
        (b"nosuch://:secret@db/0", "no store is known"),
    ],
)
def test_a_file_without_a_url_is_an_error(
    shell: Shell, secret: Path, content: bytes | None, message: str
) -> None:
    secret.unlink()
    if content is not None:
        secret.write_bytes(content)
    for words in (["--url-file", str(secret)], []):
        done = shell.run("ls", *words)
        assert (done.returncode, done.stdout) == (78, "")
        assert message in done.stderr
        assert "secret" not in done.stderr
        shell.env["LEASELOCK_URL_FILE"] = str(secret)
    shell.env["LEASELOCK_URL_FILE"] = ""
    assert shell.run("ls").returncode == 78


def test_a_nested_command_reads_the_same_file(shell: Shell, secret: Path) -> None:
    """Also in another directory, where the path is relative."""
    shell.env["LEASELOCK_URL_FILE"] = secret.name
    for name, code in (("a", 64), ("b", 0)):
        inner = ["sh", "-c", 'cd / && exec "$@"', "sh", *LEASELOCK, "run", name, "--", "true"]
        process = shell.start("run", "a", "--", *inner, cwd=shell.folder)
        assert ended(process) == code


@pytest.mark.parametrize("kind", [leaselock.Client, leaselock.AsyncClient])
def test_a_client_reads_the_file(
    kind: type, shell: Shell, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEASELOCK_URL", raising=False)
    monkeypatch.setenv("LEASELOCK_URL_FILE", str(secret))
    assert kind().url == shell.url
    monkeypatch.setenv("LEASELOCK_URL", shell.url)
    with pytest.raises(ValueError, match="both LEASELOCK_URL and LEASELOCK_URL_FILE"):
        kind()


def test_a_byte_order_mark_is_not_part_of_the_url(shell: Shell, secret: Path) -> None:
    secret.write_bytes(b"\xef\xbb\xbf" + secret.read_bytes())
    assert listed(shell, "--url-file", str(secret)) == []


def test_the_command_in_a_message_names_the_store_as_it_was_given(shell: Shell) -> None:
    """The URL in the message lacks password and options, so doctor would report another fault."""
    url = "redis://:secret@127.0.0.1:1/0?prefix=jobs:"
    file = shell.folder / "url of redis"
    file.write_text(url)
    plain = "redis://127.0.0.1:1/0?prefix=jobs:"
    quick = ("--op-timeout", "100ms", "ls")
    for words, variables, command in (
        (("--url-file", str(file)), {}, f"leaselock doctor --url-file '{file}'"),
        (("--url", plain), {}, f"leaselock doctor --url '{plain}'"),
        (("--url", url), {}, "leaselock doctor --url URL, with the same URL"),
        ((), {"LEASELOCK_URL": url}, "leaselock doctor"),
    ):
        shell.env.pop("LEASELOCK_URL", None)
        shell.env |= variables
        done = shell.run(*words, *quick)
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.endswith(f"can reach it: {command}\n")
        assert "secret" not in done.stderr


def test_doctor_warns_of_a_password_that_others_can_read(shell: Shell, secret: Path) -> None:
    words = ("doctor", "--op-timeout", "100ms", "--url-file", str(secret))
    for content, mode, warned in (
        ("redis://:secret@127.0.0.1:1/0", 0o644, True),
        ("redis://:secret@127.0.0.1:1/0", 0o640, False),
        ("redis://127.0.0.1:1/0", 0o644, False),
    ):
        secret.write_text(content)
        secret.chmod(mode)
        out = shell.run(*words).stdout
        text = f"warn  the password in {secret} can be read by all users of this machine"
        assert (text in out, "secret@" in out) == (warned, False)
