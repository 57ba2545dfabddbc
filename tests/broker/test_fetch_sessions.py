"""Fetch sessions: epochs, omitted partitions, bounds; and a client model that must miss nothing."""

from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.fetch_sessions import EVICTION_SECONDS_MIN, FetchSessionCache
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

TOPIC_ID = UUID(int=7)


def cache(**limits: int) -> FetchSessionCache:
    numbers = count(1)
    return FetchSessionCache(lambda: next(numbers), **limits)


def request(
    session_id: int,
    epoch: int,
    partitions: dict[int, int] | None = None,
    forgotten: tuple[int, ...] = (),
    *,
    topic_id: UUID | None = None,
) -> FetchRequest:
    topics = (
        FetchTopic(
            topic="" if topic_id else "t",
            topic_id=topic_id,
            partitions=tuple(
                FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=100)
                for p, o in (partitions or {}).items()
            ),
        ),
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else (),
        forgotten_topics_data=(
            ForgottenTopic(topic="" if topic_id else "t", topic_id=topic_id, partitions=forgotten),
        )
        if forgotten
        else (),
    )


def test_a_full_request_starts_a_session_and_increments_follow() -> None:
    sessions = cache()
    plan = sessions.begin(request(0, 0, {0: 5, 1: 6}), 0.0)
    assert plan.session_id == 1
    assert not plan.is_incremental
    again = sessions.begin(request(1, 1, {1: 9}), 1.0)
    assert again.is_incremental
    assert {p.partition: p.fetch_offset for p in again.partitions} == {0: 5, 1: 9}
    third = sessions.begin(request(1, 2, forgotten=(0,)), 2.0)
    assert [p.partition for p in third.partitions] == [1]
    sessions.validate()


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 2**31 - 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (-5, 7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_a_wrong_session_or_epoch_changes_nothing(
    session_id: int, epoch: int, code: ErrorCode
) -> None:
    sessions = cache()
    sessions.begin(request(0, 0, {0: 5}), 0.0)
    plan = sessions.begin(request(session_id, epoch, {0: 8}), 1.0)
    assert plan.error == code
    assert not plan.partitions
    assert [p.fetch_offset for p in sessions.begin(request(1, 1), 2.0).partitions] == [5]
    sessions.validate()


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    sessions = cache()
    sessions.begin(request(0, 0, {0: 5}), 0.0)
    plan = sessions.begin(request(1, 1, {1: 5}, topic_id=TOPIC_ID), 1.0)
    assert plan.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_ends_the_session() -> None:
    sessions = cache()
    sessions.begin(request(0, 0, {0: 5}), 0.0)
    plan = sessions.begin(request(1, -1, {0: 5}), 1.0)
    assert plan.session_id == 0
    assert [p.partition for p in plan.partitions] == [0]
    assert len(sessions) == 0


def test_a_session_that_became_empty_is_forgotten() -> None:
    sessions = cache()
    sessions.begin(request(0, 0, {0: 5}), 0.0)
    assert sessions.begin(request(1, 1, forgotten=(0,)), 1.0).session_id == 0
    assert len(sessions) == 0
    sessions.validate()


def test_without_room_the_client_is_answered_without_a_session() -> None:
    sessions = cache(sessions_max=1)
    assert sessions.begin(request(0, 0, {0: 0}), 0.0).session_id == 1
    assert sessions.begin(request(0, 0, {0: 0}), 1.0).session_id == 0
    assert sessions.begin(request(0, 0, {0: 0}), EVICTION_SECONDS_MIN + 1).session_id == 2
    assert len(sessions) == 1
    sessions.validate()


def test_growing_past_the_bound_starts_the_client_anew() -> None:
    sessions = cache(partitions_max=2)
    sessions.begin(request(0, 0, {0: 0, 1: 0}), 0.0)
    plan = sessions.begin(request(1, 1, {2: 0}), 1.0)
    assert plan.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.begin(request(0, 0, {0: 0, 1: 0, 2: 0}), 1.0).session_id == 0
    sessions.validate()


def test_only_changes_are_named_in_an_incremental_answer() -> None:
    sessions = cache()
    plan = sessions.begin(request(0, 0, {0: 0}), 0.0)
    first = plan.partitions[0]
    assert plan.include(first, has_news=False, high_watermark=3, log_start_offset=0)
    plan = sessions.begin(request(1, 1), 1.0)
    first = plan.partitions[0]
    assert not plan.include(first, has_news=False, high_watermark=3, log_start_offset=0)
    assert plan.include(first, has_news=False, high_watermark=4, log_start_offset=0)
    assert plan.include(first, has_news=False, high_watermark=4, log_start_offset=1)
    assert plan.include(first, has_news=True, high_watermark=4, log_start_offset=1)


def test_a_partition_with_news_is_served_last_next_time() -> None:
    sessions = cache()
    plan = sessions.begin(request(0, 0, {0: 0, 1: 0, 2: 0}), 0.0)
    plan.include(plan.partitions[0], has_news=True, high_watermark=1, log_start_offset=0)
    assert [p.partition for p in sessions.begin(request(1, 1), 1.0).partitions] == [1, 2, 0]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=3),
            st.frozensets(st.integers(0, 4), max_size=2),
            st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=5),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_client_always_knows_the_newest_watermarks(
    steps: list[tuple[dict[int, int], frozenset[int], dict[int, int]]],
) -> None:
    sessions = cache()
    wanted: dict[int, int] = {0: 0}
    known: dict[int, int] = {}
    marks: dict[int, int] = {}
    plan = sessions.begin(request(0, 0, wanted), 0.0)
    epoch = 1
    for updates, forgotten, moved in steps:
        if plan.session_id == 0:
            break
        marks.update(moved)
        for partition in plan.partitions:
            mark = marks.get(partition.partition, 0)
            if plan.include(partition, has_news=False, high_watermark=mark, log_start_offset=0):
                known[partition.partition] = mark
        assert {p: known[p] for p in wanted} == {p: marks.get(p, 0) for p in wanted}
        sessions.validate()
        wanted |= updates
        for partition_index in forgotten:
            wanted.pop(partition_index, None)
            known.pop(partition_index, None)
        plan = sessions.begin(request(1, epoch, updates, tuple(forgotten)), float(epoch))
        epoch += 1
        assert {p.partition: p.fetch_offset for p in plan.partitions} == wanted
