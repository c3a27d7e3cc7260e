"""The private servers do what the tests ask of them."""

from __future__ import annotations

import pytest
from testkit.servers.cluster import Cluster
from testkit.servers.redis import Redis
from testkit.servers.resp import ReplyError
from testkit.servers.sentinel import Sentinels

pytestmark = pytest.mark.heavy

USER = ["user default on nopass ~* &* +@all", "user reader on >pw ~r:* +get"]


@pytest.mark.parametrize("appendonly", [False, True])
def test_a_restart_with_and_without_data(appendonly: bool) -> None:
    with Redis(appendonly=appendonly) as server:
        server.ask("SET", "a", 1)
        server.restart()
        assert server.ask("GET", "a") == "1"
        server.restart(keep_data=False)
        assert server.ask("GET", "a") is None
    assert not server.folder.exists()


def test_what_is_appended_survives_a_kill() -> None:
    with Redis(appendonly=True) as server:
        server.ask("SET", "a", 1)
        server.kill()
        server.restart()
        assert server.ask("GET", "a") == "1"


def test_who_is_let_in() -> None:
    with Redis(password="secret") as server:
        assert server.ask("PING") == "PONG"
        server.password = "wrong"
        with pytest.raises(ReplyError, match="WRONGPASS"):
            server.ask("PING")
    with Redis(acl=USER) as server, server.wire() as wire:
        wire.ask("AUTH", "reader", "pw")
        with pytest.raises(ReplyError, match="NOPERM"):
            wire.ask("GET", "other")


def test_tls_and_a_unix_socket() -> None:
    for server in (Redis(tls=True), Redis(unix=True)):
        with server:
            assert server.ask("PING") == "PONG"


def test_a_frozen_server_goes_on() -> None:
    with Redis() as server, server.wire() as wire:
        server.pause()
        wire.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            wire.ask("PING")
        server.cont()
        assert server.ask("PING") == "PONG"


def test_commands_inside_scripts_are_counted() -> None:
    with Redis() as server:
        before = server.command_count()
        server.ask("EVAL", "for i = 1, 100 do redis.call('INCR', KEYS[1]) end", 1, "n")
        assert 100 <= server.command_count() - before < 110


def test_sentinels_choose_another_master() -> None:
    with Sentinels(password="secret") as servers:
        old = servers.master
        new = servers.fail_over()
        assert new is not old
        assert new.ask("SET", "a", 1) == "OK"
        servers.revive(old)
        assert old.ask("GET", "a") == "1"


def test_a_cluster_moves_slots_and_fails_over() -> None:
    with Cluster() as cluster:
        slot = cluster.slot("a")
        source = cluster.owner(slot)
        source.ask("SET", "a", 1)
        move = cluster.begin_move(slot)
        move.keys()
        with pytest.raises(ReplyError, match=f"ASK {slot} 127.0.0.1:{move.target.port}"):
            source.ask("GET", "a")
        move.finish()
        with pytest.raises(ReplyError, match=f"MOVED {slot} 127.0.0.1:{move.target.port}"):
            source.ask("GET", "a")
        assert cluster.owner(slot) is move.target
        new = cluster.fail_over(slot)
        assert new.ask("GET", "a") == "1"
        cluster.revive(move.target)
