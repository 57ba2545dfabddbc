"""A report of a task is read as it was written, counts once, and anything else counts nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.loss.data_loss import LossKind
from penstock.spark.loss.reports import (
    REPORT_BYTES_MAX,
    LossBook,
    LossReport,
    read_report,
    united,
    write_report,
)
from penstock.spark.planning import LossAddress, OffsetRange

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TO = LossAddress("driver", 1, "secret", 1)


def report(first: int, until: int, at: TopicPartition = A) -> bytes:
    lost = OffsetRange(at, first, until)
    return write_report(TO, LossReport(lost, LossKind.REMOVED, "it is gone", "it goes on"))


def book() -> LossBook:
    made = LossBook("secret")
    assert made.begin_batch() == TO.batch
    return made


def taken(one: LossBook, *reports: bytes) -> dict[TopicPartition | None, int]:
    return {loss.at: loss.offsets for loss in one.take(reports)}


@pytest.mark.parametrize("kind", LossKind)
def test_a_report_comes_as_it_was_sent(kind: LossKind) -> None:
    long_name = TopicPartition("t" * 249, 99_999)
    sentence = f"offset {2**63 - 1} of {long_name} is wanted, but it was deleted while it was read"
    sent = LossReport(OffsetRange(long_name, 0, 2**63 - 1), kind, sentence, sentence)
    data = write_report(TO, sent)
    assert len(data) < REPORT_BYTES_MAX
    assert read_report(data, "secret", 1) == sent


def test_a_loss_says_what_the_task_said() -> None:
    (loss,) = book().take([report(5, 9)])
    assert (loss.kind, loss.at, loss.offsets) == (LossKind.REMOVED, A, 4)
    assert loss.what == "while orders-0 was read: it is gone"
    assert loss.goes_on == "it goes on"


def test_a_repeated_task_counts_once() -> None:
    one = book()
    assert taken(one, report(5, 9), report(5, 9)) == {A: 4}
    assert taken(one, report(5, 9)) == {}
    assert taken(one, report(5, 12), report(0, 2)) == {A: 5}, "more was removed until the repeat"
    assert taken(one, report(0, 20), report(0, 1, B)) == {A: 11, B: 1}


def test_tasks_of_one_partition_are_one_loss() -> None:
    assert taken(book(), report(0, 10), report(10, 20), report(30, 31)) == {A: 21}


def test_a_batch_knows_only_its_own_tasks() -> None:
    one = book()
    taken(one, report(5, 9))
    one.begin_batch()
    assert taken(one, report(20, 30)) == {}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=12))
def test_every_lost_offset_counts_once(spans: list[tuple[int, int]]) -> None:
    one, lost, counted = book(), set(), 0
    for first, size in spans:
        lost |= set(range(first, first + size))
        counted += sum(taken(one, report(first, first + size)).values())
        assert counted == len(lost)
    ranges = united(OffsetRange(A, first, first + size) for first, size in spans)
    assert {n for each in ranges for n in range(each.from_offset, each.until_offset)} == lost
    assert sum(each.size for each in ranges) == len(lost)


VALUES = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3), st.lists(st.none()))


@given(st.binary(max_size=80))
def test_what_is_no_report_counts_nothing(data: bytes) -> None:
    assert book().take([data]) == []


@given(st.sampled_from(sorted(json.loads(report(5, 9)))), VALUES)
def test_a_report_with_a_wrong_field_is_refused_or_read(name: str, value: object) -> None:
    document: dict[str, Any] = {**json.loads(report(5, 9)), name: value}
    assert len(book().take([json.dumps(document).encode()])) <= 1
    del document[name]
    assert book().take([json.dumps(document).encode()]) == []


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"[" * 100_000,
        report(5, 9).replace(b'"secret": "secret"', b'"secret": "other"'),
        report(5, 9).replace(b'"batch": 1', b'"batch": 2'),
        report(5, 9).replace(b'"kind": "removed"', b'"kind": "eaten"'),
        report(5, 9).replace(b'"from": 5', b'"from": -5'),
        report(5, 9)[:-1],
    ],
)
def test_a_report_of_another_run_or_batch_counts_nothing(data: bytes) -> None:
    assert book().take([data]) == []
