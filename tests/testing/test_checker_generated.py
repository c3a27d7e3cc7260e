"""Generated histories: valid ones pass, mutated ones fail, and brute force agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing.histories import BOUNDS, HistoryBuilder, Step, steps, valid

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.record_format import FOREVER, Event, Record
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from leaselock.testing.history import Hold, LockHistory

FAR = 10**6


# --- valid by construction ----------------------------------------------------------------------


@given(steps())
def test_valid_history_passes(turns: list[Step]) -> None:
    verdict = valid(turns).check(Rules(min_grants=0, ghost_bound=100, hand_over_bound=30))
    assert verdict.ok, str(verdict)
    assert verdict.counts.grants == sum(step.end != "unknown" for step in turns)


@given(steps(), st.randoms(use_true_random=False))
def test_order_of_records_does_not_matter(turns: list[Step], rng: random.Random) -> None:
    builder = valid(turns)
    before = builder.check(BOUNDS)
    rng.shuffle(builder.records)
    assert builder.check(BOUNDS) == before


# --- mutations ----------------------------------------------------------------------------------


def grants(builder: HistoryBuilder) -> list[int]:
    return [i for i, record in enumerate(builder.records) if record.event is Event.GRANTED]


def change_token(builder: HistoryBuilder, index: int, token: int | None) -> None:
    builder.records[index] = builder.records[index]._replace(token=token)


def intrude(builder: HistoryBuilder, chosen: int) -> None:
    victim = builder.records[grants(builder)[chosen]]
    builder.release(builder.grant(victim.ts + 1, pid=50), victim.ts + 2, pid=50)


def swap_tokens(builder: HistoryBuilder, chosen: int) -> None:
    one, other = grants(builder)[chosen], grants(builder)[chosen + 1]
    low, high = builder.records[one].token, builder.records[other].token
    change_token(builder, one, high)
    change_token(builder, other, low)


def repeat_token(builder: HistoryBuilder, chosen: int) -> None:
    one, other = grants(builder)[chosen], grants(builder)[chosen + 1]
    change_token(builder, other, builder.records[one].token)


def extend_hold(builder: HistoryBuilder, chosen: int) -> None:
    """Extend one certain interval beyond the next grant."""
    hold = builder.records[grants(builder)[chosen]].hold
    later = builder.records[grants(builder)[chosen + 1]].ts + 1
    for i, record in enumerate(builder.records):
        if record.hold == hold and record.event is Event.RELEASING:
            builder.records[i] = record._replace(ts=later)


def forget_releasing(builder: HistoryBuilder, chosen: int) -> None:
    hold = builder.records[grants(builder)[chosen]].hold
    builder.records = [r for r in builder.records if (r.hold, r.event) != (hold, Event.RELEASING)]


def refuse_without_cause(builder: HistoryBuilder, chosen: int) -> None:
    builder.refuse(FAR + chosen, FAR + chosen + 1)


def leave_waiting(builder: HistoryBuilder, chosen: int) -> None:
    builder.refuse(FAR + chosen, FAR + 500, timeout=500)


def swap_writes(builder: HistoryBuilder, chosen: int) -> None:
    writes = [i for i, record in enumerate(builder.records) if record.event is Event.WRITE_DONE]
    one, other = writes[chosen], writes[chosen + 1]
    low, high = builder.records[one].aux, builder.records[other].aux
    builder.records[one] = builder.records[one]._replace(aux=high)
    builder.records[other] = builder.records[other]._replace(aux=low)


def lose_update(builder: HistoryBuilder, chosen: int) -> None:
    done = [record for record in builder.records if record.event is Event.WRITE_DONE][chosen]
    builder.write(done.ts + 1, done.aux, done.token)


MUTATIONS: list[tuple[Callable[[HistoryBuilder, int], None], Kind]] = [
    (intrude, Kind.OVERLAP),
    (extend_hold, Kind.OVERLAP),
    (swap_tokens, Kind.TOKEN_ORDER),
    (repeat_token, Kind.TOKEN_REUSED),
    (forget_releasing, Kind.MALFORMED),
    (refuse_without_cause, Kind.REFUSAL),
    (leave_waiting, Kind.STALL),
    (swap_writes, Kind.STALE_WRITE),
    (lose_update, Kind.LOST_UPDATE),
]


@pytest.mark.parametrize(
    ("mutate", "kind"), MUTATIONS, ids=lambda value: getattr(value, "__name__", value)
)
@given(turns=steps(ends=("released",), least=2), data=st.data())
@settings(max_examples=30)
def test_mutated_history_fails(
    mutate: Callable[[HistoryBuilder, int], None],
    kind: Kind,
    turns: list[Step],
    data: st.DataObject,
) -> None:
    builder = valid(turns)
    mutate(builder, data.draw(st.integers(0, len(turns) - 2)))
    assert kind in builder.check(BOUNDS).kinds()


# --- brute force --------------------------------------------------------------------------------

ENDINGS = ("released", "lost", "expired", "open", "refused", "unknown", "silent", "unreleased")
Case = tuple[str, int, int, list[int], int, int]


def cases() -> st.SearchStrategy[list[Case]]:
    instants = st.lists(st.integers(0, 4), min_size=4, max_size=4)
    case = st.tuples(
        st.sampled_from(ENDINGS),
        st.integers(1, 3),
        st.integers(0, 12),
        instants,
        st.integers(0, 6),
        st.sampled_from([0, FOREVER]),
    )
    return st.lists(case, max_size=7)


def builder_of(cases: list[Case]) -> HistoryBuilder:
    """Return arbitrary histories, right or wrong, in a short time, so that many holds collide."""
    builder = HistoryBuilder()
    for case, pid, asked, pauses, token, timeout in cases:
        times = [asked + sum(pauses[: i + 1]) for i in range(4)]
        hold = builder.acquiring(asked, pid=pid, timeout=timeout)
        if case in ("refused", "unknown"):
            builder.put(times[0], Event[case.upper()], hold, pid)
        elif case != "silent":
            builder.put(times[0], Event.GRANTED, hold, pid, token)
            _end(builder, case, hold, pid, times)
    return builder


def _end(builder: HistoryBuilder, case: str, hold: int, pid: int, times: list[int]) -> None:
    if case == "lost":
        builder.put(times[1], Event.LOST_REPORTED, hold, pid)
    if case == "expired":
        builder.put(times[0], Event.VALID_UNTIL, hold, pid, aux=times[1])
    if case in ("released", "expired", "unreleased"):
        builder.put(times[2], Event.RELEASING, hold, pid)
    if case == "released":
        builder.put(times[3], Event.RELEASED, hold, pid)


def was_granted_before(one: Hold, other: Hold) -> bool:
    assert one.granted is not None
    assert other.granted is not None
    return (one.granted, one.ident) < (other.granted, other.ident)


def brute_overlaps(held: list[Hold]) -> set[int]:
    return {
        b.ident
        for a in held
        for b in held
        if a.certain_interval
        and b.certain_interval
        and was_granted_before(a, b)
        and b.certain_interval[0] < a.certain_interval[1]
    }


def brute_decreases(held: list[Hold]) -> Iterator[int]:
    for a in held:
        for b in held:
            assert a.granted is not None
            assert a.token is not None
            assert b.token is not None
            certain = a.certain_interval and b.certain_interval and was_granted_before(a, b)
            if a.token > b.token and (certain or a.granted < b.began):
                yield b.ident


def brute_reuse(held: list[Hold]) -> set[int]:
    return {b.ident for a in held for b in held if a.token == b.token and was_granted_before(a, b)}


def brute_refusals(holds: list[Hold], bound: int) -> Iterator[int]:
    for refused in holds:
        if refused.refused is None or not refused.non_blocking:
            continue
        others = [h for h in holds if h.refused is None or not h.non_blocking]
        if not any(
            h.began <= refused.refused
            and refused.began <= h.possible_until + (0 if h.clean else bound)
            for h in others
        ):
            yield refused.ident


def brute_idleness(holds: list[Hold], ghost: int, hand_over: int) -> Iterator[int]:
    """Yield the holds after which the lock stayed idle while an attempt waited."""
    taken = [(h.began if h.granted is None else h.granted, h) for h in holds if h.refused is None]
    for start, before in taken:
        key = (before.possible_until, start, before.ident)
        known = [(s, h) for s, h in taken if s <= before.possible_until]
        if any((h.possible_until, s, h.ident) > key for s, h in known):
            continue
        until = min((s for s, _ in taken if s > before.possible_until), default=FAR)
        bound = hand_over if before.clean else ghost
        ghosts = [h.possible_until + ghost for _, h in known if not h.clean]
        idle_from = max([before.possible_until + bound, *ghosts])
        if any(
            h.began <= until and min(until, h.answered) > max(idle_from, h.began + bound)
            for h in holds
        ):
            yield before.ident


def brute(lock: LockHistory, rules: Rules) -> dict[str, set[int]]:
    assert rules.ghost_bound is not None
    assert rules.hand_over_bound is not None
    held = lock.grants()
    return {
        "overlap": brute_overlaps(held),
        "order": set(brute_decreases(held)),
        "reuse": brute_reuse(held),
        "refusal": set(brute_refusals(lock.holds, rules.ghost_bound)),
        "idle": set(brute_idleness(lock.holds, rules.ghost_bound, rules.hand_over_bound)),
    }


def by_sweep(builder: HistoryBuilder, rules: Rules) -> dict[str, set[int]]:
    found = builder.check(rules).violations
    named = {
        "overlap": (-1, {Kind.OVERLAP}),
        "order": (-1, {Kind.TOKEN_ORDER}),
        "reuse": (-1, {Kind.TOKEN_REUSED}),
        "refusal": (0, {Kind.REFUSAL}),
        "idle": (0, {Kind.GHOST, Kind.STALL}),
    }
    return {
        name: {violation.holds[place] for violation in found if violation.kind in kinds}
        for name, (place, kinds) in named.items()
    }


@given(cases(), st.integers(0, 6), st.integers(0, 3))
@settings(max_examples=600)
def test_sweep_finds_the_same_as_brute_force(cases: list[Case], ghost: int, hand_over: int) -> None:
    builder = builder_of(cases)
    rules = Rules(ghost_bound=ghost, hand_over_bound=hand_over)
    locks = list(builder.history().locks.values())
    expected = [brute(lock, rules) for lock in locks]
    assert [by_sweep(builder, rules)] * len(locks) == expected


# --- size ---------------------------------------------------------------------------------------


def turn(number: int) -> Iterator[Record]:
    """Yield the records of one contended hold; in every hundredth, another attempt is refused."""
    lock, start, pid = number % 5, 1000 + number * 10, 1 + number % 8
    for ts, event, token in (
        (start - 40, Event.ACQUIRING, None),
        (start, Event.GRANTED, number),
        (start + 40, Event.RELEASING, None),
        (start + 45, Event.RELEASED, None),
    ):
        yield Record(ts, event, lock, number, pid, token=token, aux=FOREVER)
    if number % 100 == 0:
        yield Record(start + 10, Event.ACQUIRING, lock, FAR + number, 9)
        yield Record(start + 20, Event.REFUSED, lock, FAR + number, 9)


@pytest.mark.heavy
def test_check_of_100000_holds() -> None:
    records = (record for number in range(100_000) for record in turn(number))
    verdict = check(History.of(records), BOUNDS)
    assert verdict.ok, str(verdict)
    counts = verdict.counts
    assert (counts.locks, counts.grants, counts.refusals) == (5, 100_000, 1_000)
    assert counts.hand_overs == 100_000 - 5
