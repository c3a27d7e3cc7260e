"""A lock of Redis that another program holds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from testkit.proxy import Proxy
from tests.pace import pace
from tests.people import command, key_of

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

JAVA = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6:31"
NAMES = ["hash", "string"]


def taken_by_another(redis: Redis, form: str) -> tuple[str, str, int]:
    """A lock that was ours and is another program's now: its URL, its key, our last token."""
    url = f"{redis.url}?protocol={form}"
    key = key_of(redis, "a")
    with leaselock.Client(url) as client, client.lock("a") as lease:
        token = lease.token
    if form == "hash":
        redis.ask("HSET", key, JAVA, 1)
        redis.ask("PEXPIRE", key, 600_000)
    else:
        redis.ask("SET", key, "20779d03h", "PX", 600_000)
    return url, key, token


@pytest.mark.parametrize("form", NAMES)
def test_holder_of_another_program_has_no_token(redis: Redis, form: str) -> None:
    url, _, _ = taken_by_another(redis, form)
    with leaselock.Client(url) as client:
        holder = client.lock("a").holder()
        assert holder is not None
        assert holder.token is None
        assert client.lock("a").locked()


@pytest.mark.parametrize("form", NAMES)
def test_a_key_without_an_expiry_is_called_that_and_no_secret_is_printed(
    redis: Redis, form: str
) -> None:
    """Who knows the value of a string can release the lock."""
    url, key, _ = taken_by_another(redis, form)
    redis.ask("PERSIST", key)
    with leaselock.Client(url) as client:
        with pytest.raises(leaselock.AcquireTimeout) as caught:
            client.lock("a").acquire(timeout=0.1)
        shown = [str(caught.value), str(client.lock("a").holder()), str(client.locks()[0].holder)]
    for text in shown:
        assert "without an expiry: only `leaselock break` frees it" in text
        assert "20779d03h" not in text
        assert (JAVA in text) == (form == "hash")


@pytest.mark.parametrize("form", NAMES)
def test_break_with_our_last_token_leaves_the_other_program_alone(redis: Redis, form: str) -> None:
    url, key, token = taken_by_another(redis, form)
    with leaselock.Client(url) as client, pytest.raises(leaselock.NotHeld):
        client.break_lock("a", token=token)
    assert redis.ask("EXISTS", key) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("form", NAMES)
def test_commands_with_our_last_token_are_refused(redis: Redis, form: str) -> None:
    url, key, token = taken_by_another(redis, form)
    check = command("check", "a", "--token", str(token), url=url)
    assert check.returncode == 79, check
    broken = command("break", "a", "--token", str(token), "--reason", "test", url=url)
    assert broken.returncode == 79, broken
    assert redis.ask("EXISTS", key) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("form", NAMES)
def test_every_command_says_that_another_program_holds(redis: Redis, form: str) -> None:
    url, _, _ = taken_by_another(redis, form)
    show = command("show", "a", url=url)
    assert "held by another program" in show.stdout, show
    assert "since unknown" in show.stdout
    assert "free" not in show.stdout
    ls = command("ls", url=url)
    assert "another program" in ls.stdout, ls
    assert "a" in ls.stdout.splitlines()[1].split()
    run = command("run", "-n", "a", "--", "true", url=url)
    assert run.returncode == 75
    assert "another program" in run.stderr
    for text in (show.stdout, ls.stdout, run.stderr):
        text = text.replace(JAVA, "").replace("20779d03h", "")
        assert not re.search(r"\b\d{5}d\d", text)  # no age since 1970
    (listed,) = json.loads(command("ls", "--json", url=url).stdout)["locks"]
    assert listed["holder"]["token"] is None
    assert listed["holder"]["since"] is None


@pytest.mark.heavy
@pytest.mark.parametrize("form", NAMES)
def test_lock_of_another_program_is_broken_after_confirmation(redis: Redis, form: str) -> None:
    url, key, _ = taken_by_another(redis, form)
    broken = command("break", "a", "--yes", "--reason", "test", url=url)
    assert broken.returncode == 0, broken
    assert redis.ask("EXISTS", key) == 0


@pytest.mark.heavy
def test_lock_that_never_was_ours_is_listed_and_shown(redis: Redis) -> None:
    key = key_of(redis, "a").removesuffix("a") + "fresh"
    redis.ask("HSET", key, JAVA, 1)
    redis.ask("PEXPIRE", key, 600_000)
    assert "held by another program" in command("show", "fresh", url=redis.url).stdout
    assert "fresh" in command("ls", "--all", url=redis.url).stdout
    with leaselock.Client(redis.url) as client:
        assert client.lock("fresh").locked()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_break_whose_reply_is_lost_breaks_one_holder_only(redis: Redis, nth: int) -> None:
    """The first waiter gets the lock, whichever question had no answer, and keeps it."""
    with (
        Proxy(redis.port) as proxy,
        leaselock.Client(redis.url) as first,
        leaselock.Client(redis.url) as second,
        leaselock.Client(f"redis://127.0.0.1:{proxy.port}/0", op_timeout=pace()) as person,
    ):
        held = first.lock("a").acquire()
        assert held is not None
        # The scripts are known to the server, so that each question is one request.
        with pytest.raises(leaselock.LeaseLost), second.lock("other"):
            person.break_lock("other")
        person.lock("a").holder()
        proxy.lose_reply(b"EVAL", nth=nth)
        broken = person.break_lock("a")
        assert broken is not None
        assert broken.token == held.token
        lease = second.lock("a").acquire(timeout=60)
        lease.ensure()
        assert second.lock("a").holder() is not None
        lease.release()
