"""Back-off, the common end, health, rates, groups: the small decisions of a pipe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.edge.pipes.back_off import BackOff
from penstock.edge.pipes.common_end import BatchMark, CommonEnd
from penstock.edge.pipes.down_pipe import Problem
from penstock.edge.pipes.group_copies import offsets_to_commit
from penstock.edge.pipes.parent_calls import first_mark, whole_batches
from penstock.edge.pipes.pipe_health import (
    Facts,
    Priority,
    Room,
    State,
    is_held,
    judge,
    seconds_to_catch_up,
    seconds_until_full,
)
from penstock.edge.pipes.pipe_meter import Pacer, PipeMeter
from penstock.edge.pipes.pipe_status import matcher
from penstock.edge.pipes.ports import CommittedOffset

AT, OTHER = TopicPartition("price", 0), TopicPartition("price", 1)


def test_pauses_grow_to_a_minute_and_are_random_shares_of_their_bound() -> None:
    pauses = BackOff()
    assert [pauses.next_pause(1.0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.next_pause(0.25) == 15
    assert pauses.next_pause(0.0) == 0
    pauses.reset()
    assert pauses.next_pause(1.0) == 0.5


@given(st.lists(st.integers(1, 5), max_size=30), st.integers(0, 30))
def test_the_common_end_is_found(sizes: list[int], common: int) -> None:
    own: list[BatchMark] = []
    parent: list[BatchMark] = []
    offset = 0
    for number, size in enumerate(sizes):
        own.append(BatchMark(offset, offset + size - 1, 0, number))
        crc = number if number < common else -number - 1
        parent.append(own[-1]._replace(crc=crc))
        offset += size
    search, probes = CommonEnd(0, offset), 0

    def at(batches: list[BatchMark], probe: int) -> BatchMark | None:
        return next((one for one in batches if one.last_offset >= probe), None)

    while (probe := search.probe) is not None:
        search.compared(at(own, probe), at(parent, probe))
        probes += 1
    assert search.result == (
        own[min(common, len(own)) - 1].last_offset + 1 if own and common else 0
    )
    assert probes <= 2 + offset.bit_length()


FACTS = Facts(
    now=1_000.0,
    silent_since=999.5,
    poll_seconds=1.0,
    is_retrying=False,
    problems=(),
    failure="",
    behind_since=None,
    is_catching_up=True,
    lag_records=0,
    records_per_second=0.0,
    room=Room.ENOUGH,
    is_paused=False,
    clock_skew_seconds=0.0,
)


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ({}, State.HEALTHY, ""),
        ({"behind_since": 995.0, "lag_records": 5}, State.HEALTHY, ""),
        ({"behind_since": 900.0, "lag_records": 5}, State.DEGRADED, "catching up"),
        (
            {"behind_since": 900.0, "lag_records": 5, "is_catching_up": False},
            State.DEGRADED,
            "does not fall",
        ),
        ({"silent_since": 996.0}, State.DEGRADED, "no answer"),
        ({"silent_since": 930.0, "failure": "refused"}, State.UNHEALTHY, "no contact"),
        ({"silent_since": 930.0, "is_paused": True}, State.DEGRADED, "paused"),
        ({"is_retrying": True, "failure": "refused"}, State.DEGRADED, "retrying: refused"),
        ({"room": Room.LOW}, State.DEGRADED, "low"),
        ({"room": Room.FULL}, State.UNHEALTHY, "full"),
        ({"clock_skew_seconds": 301.0}, State.DEGRADED, "clock"),
        ({"problems": (Problem("gap", "skip"),)}, State.UNHEALTHY, "gap"),
    ],
)
def test_health(change: dict[str, object], state: State, reason: str) -> None:
    health = judge(Facts(**{**FACTS._asdict(), **change}))
    assert health.state is state
    assert reason in health.reason
    assert bool(health.remedy) == (state is not State.HEALTHY)


def test_a_filling_disk_holds_pipes_by_priority() -> None:
    assert not is_held(Room.ENOUGH, Priority.LOW)
    assert is_held(Room.LOW, Priority.LOW)
    assert not is_held(Room.LOW, Priority.NORMAL)
    assert is_held(Room.FULL, Priority.NORMAL)


def test_estimates() -> None:
    assert seconds_to_catch_up(100, 50.0) == 2
    assert seconds_to_catch_up(100, 0.0) is None
    assert seconds_to_catch_up(0, 0.0) == 0
    assert seconds_until_full(1_000, 10.0) == 100
    assert seconds_until_full(1_000, 0.0) is None


def test_rates_and_lag() -> None:
    meter = PipeMeter(0.0)
    for second in range(1, 31):
        meter.copied(10, 100, second)
        meter.answered(float(second), 300 - 10 * second)
    assert meter.records_per_second(30.0) == pytest.approx(10, rel=0.1)
    assert meter.bytes_per_second(30.0) == pytest.approx(100, rel=0.1)
    assert meter.is_catching_up
    assert meter.behind_since is None
    meter.lost(31.0)
    assert meter.behind_since == 31.0


def test_a_pacer_spreads_bytes() -> None:
    pacer = Pacer(1_000)
    assert pacer.pause_seconds(0.0, 500) == 0.5
    assert pacer.pause_seconds(0.0, 500) == 1.0
    assert pacer.pause_seconds(10.0, 100) == pytest.approx(0.1)
    assert Pacer(0).pause_seconds(0.0, 10**9) == 0


def test_a_low_bound_makes_requests_small_and_pauses_at_most_30_seconds() -> None:
    pacer = Pacer(100)
    assert pacer.request_bytes(1_048_576) == 100
    assert pacer.pause_seconds(0.0, 100) == 1.0
    assert pacer.pause_seconds(1.0, 1_048_576) == 30.0, "a batch that came alone"
    assert pacer.pause_seconds(31.0, 100) == 1.0, "it is not paid later"
    assert Pacer(10_000_000).request_bytes(1_048_576) == 1_048_576
    assert Pacer(0).request_bytes(1_048_576) == 1_048_576


def test_offsets_never_pass_the_end_and_never_move_back() -> None:
    theirs = {AT: CommittedOffset(50, 3, "x"), OTHER: CommittedOffset(9, 3, "")}
    wanted = offsets_to_commit(theirs, {}, {AT: 20, OTHER: 10}.get)
    assert wanted == {AT: CommittedOffset(20, -1, "x"), OTHER: CommittedOffset(9, 3, "")}
    ours = {AT: CommittedOffset(30, -1, ""), OTHER: CommittedOffset(9, -1, "")}
    assert offsets_to_commit(theirs, ours, {AT: 20, OTHER: 10}.get) == {}
    assert offsets_to_commit(theirs, {}, lambda _: None) == {}


def test_patterns() -> None:
    is_topic = matcher(("price", "promo.*", "a*b"))
    assert [
        one for one in ("price", "prices", "promo.x", "promo", "ab", "axb.") if is_topic(one)
    ] == [
        "price",
        "promo.x",
        "ab",
    ]
    assert not matcher(("a[b]*",))("ab")


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    assert bytes(whole_batches(memoryview(b"\0" * 30))) == b""
    assert first_mark(memoryview(b"")) is None
