"""What two snapshots of a store tell of the time between them."""

from __future__ import annotations

from leaselock import Holder, LockInfo, Waiter
from leaselock.live import RATE_WINDOW, RECENT, View, advance, fail, key_of

START = 1_000_000.0


def holder(who: str, token: int | None = 1, *, left: float | None = 30.0, **more: object) -> Holder:
    found = Holder("h", 1, who, START, None, token, left, owner=who)
    return found._replace(**more)  # type: ignore[arg-type]


def waiter(who: str, since: float = START) -> Waiter:
    return Waiter("h", 1, who, since, None, owner=who)


def lock(name: str, *holders: Holder, waiters: tuple[Waiter, ...] = ()) -> LockInfo:
    return LockInfo(name, holders[0] if holders else None, waiters, holders)


def after(*snapshots: list[LockInfo], broken: tuple[object, ...] = ()) -> View:
    """The view after these snapshots, a second apart."""
    view = View()
    for number, locks in enumerate(snapshots):
        keys = broken if number == len(snapshots) - 1 else ()
        clock = 10.0 + number
        view = advance(view, locks, at=START + number, clock=clock, broken=keys)  # type: ignore[arg-type]
    return view


def kinds(view: View) -> list[tuple[str, str, str]]:
    return [(change.kind, change.name, change.who.thread) for change in view.changes]


def test_the_first_snapshot_is_no_change() -> None:
    view = after([lock("b", holder("1"), waiters=(waiter("2"),)), lock("a", holder("3"))])
    assert (view.number, view.changes, view.recent, view.losses) == (1, (), (), 0)
    assert [each.name for each in view.locks] == ["a", "b"]


def test_a_grant_a_release_and_their_times() -> None:
    view = after([lock("a", holder("1"))], [lock("b", holder("2", 5))])
    assert kinds(view) == [("released", "a", "1"), ("granted", "b", "2")]
    assert [change.seconds for change in view.changes] == [1.0, 0.0]
    assert view.grants_per_second == 1.0


def test_a_waiter_is_granted_the_lock() -> None:
    before = lock("a", holder("1"), waiters=(waiter("2"), waiter("3")))
    granted = lock("a", holder("2", 9, since=START + 0.5), waiters=(waiter("3"),))
    view = after([before], [granted])
    assert kinds(view) == [("released", "a", "1"), ("granted", "a", "2")]
    assert view.changes[1].seconds == 0.5


def test_a_waiter_comes_and_one_leaves() -> None:
    one = lock("a", holder("1"), waiters=(waiter("2"),))
    other = lock("a", holder("1"), waiters=(waiter("3", START + 1),))
    assert kinds(after([one], [other])) == [("left", "a", "2"), ("waiting", "a", "3")]


def test_a_hold_that_was_not_renewed_has_expired() -> None:
    held, late = lock("a", holder("1")), lock("a", holder("1", left=0.5))
    view = after([held], [late], [])
    assert kinds(view) == [("expired", "a", "1")]
    assert view.losses == 1


def test_a_hold_that_had_time_left_was_released() -> None:
    view = after([lock("a", holder("1"))], [lock("a", holder("1", left=14.0))], [])
    assert kinds(view) == [("released", "a", "1")]
    assert view.losses == 0


def test_a_short_lease_that_is_renewed_does_not_expire_at_each_look() -> None:
    view = after([lock("a", holder("1", left=0.9))], [lock("a", holder("1", left=0.7))], [])
    assert kinds(view) == [("released", "a", "1")]


def test_the_end_of_a_detached_lease_is_no_loss() -> None:
    view = after([lock("a", holder("1", left=0.5, detached=True))], [])
    assert kinds(view) == [("expired", "a", "1")]
    assert view.losses == 0


def test_a_hold_of_a_session_does_not_expire() -> None:
    assert kinds(after([lock("a", holder("1", left=None))], [])) == [("released", "a", "1")]


def test_a_hold_that_this_client_broke() -> None:
    held = holder("1")
    view = after([lock("a", held)], [], broken=(key_of("a", held),))
    assert kinds(view) == [("broken", "a", "1")]


def test_a_lock_that_cools_down_was_released_once() -> None:
    held, cooling = holder("1"), holder("1", cooling_down=True)
    assert kinds(after([lock("a", held)], [lock("a", cooling)])) == [("released", "a", "1")]
    assert kinds(after([lock("a", cooling)], [])) == []


def test_holders_without_a_token_are_told_apart_by_what_is_known() -> None:
    one, two = holder("1", None), holder("2", None)
    assert kinds(after([lock("a", one)], [lock("a", one)])) == []
    assert kinds(after([lock("a", one)], [lock("a", two)])) == [
        ("released", "a", "1"),
        ("granted", "a", "2"),
    ]


def test_permits_of_one_owner_are_separate_holds() -> None:
    held = lock("a", holder("1", 1), holder("1", 2))
    assert kinds(after([held], [lock("a", holder("1", 2))])) == [("released", "a", "1")]


def test_a_deadlock_shows_in_the_second_snapshot() -> None:
    locks = [
        lock("a", holder("1", 1), waiters=(waiter("2"),)),
        lock("b", holder("2", 2), waiters=(waiter("1"),)),
        lock("c", holder("3", 3)),
    ]
    assert after(locks).deadlocks == ()
    assert after(locks, locks).deadlocked == {"a", "b"}
    assert after(locks, locks, locks[:1]).deadlocked == set()


def test_a_failed_read_keeps_what_is_known() -> None:
    known = after([lock("a", holder("1"))], [lock("a", holder("2", 2))])
    failed = fail(known, "no answer")
    assert (failed.number, failed.error, failed.changes) == (3, "no answer", ())
    assert (failed.locks, failed.recent, failed.at) == (known.locks, known.recent, known.at)
    back = advance(failed, [], at=START + 5, clock=15.0)
    assert (back.number, back.error) == (4, None)
    assert kinds(back) == [("released", "a", "2")]


def test_the_rate_is_that_of_the_last_minute() -> None:
    view, token = View(), 0
    for second in range(200):
        token += second < 100
        locks = [lock("a", holder("1", token))]
        view = advance(view, locks, at=START + second, clock=float(second))
        if second == 99:
            assert view.grants_per_second == 1.0
    assert view.grants_per_second == 0.0
    assert len(view.grants) == RATE_WINDOW


def test_recent_changes_are_bounded() -> None:
    snapshots = [[lock("a", holder("1", token))] for token in range(1, RECENT)]
    view = after(*snapshots)
    assert len(view.recent) == RECENT
    assert view.recent[-1].kind == "granted"
