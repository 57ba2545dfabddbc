"""Answers of a broker, or of another server: each number at its bound, and none beyond."""

import copy
import struct
from typing import Any

import pytest

from penstock.core.errors import CorruptIndexError
from penstock.core.lease_limits import LEASE_PARTITIONS_MAX
from penstock.spark.sealed.lease_answers import AbortedSpan, LeaseAnswerError, read_answer
from penstock.spark.sealed.segment_indexes import (
    IndexEntry,
    aborted_within,
    read_offset_index,
    read_transaction_index,
)

GOOD: dict[str, Any] = {
    "id": "0123456789abcdef" * 2,
    "cluster_id": "c1",
    "topic": "orders",
    "topic_id": "EjRWeBI0VngSNFZ4EjRWeA",
    "expires_at_ms": 1,
    "directory": "/data/leases/x",
    "partitions": [
        {
            "partition": 0,
            "leader_epoch": 3,
            "log_start_offset": 0,
            "segments": [
                {
                    "base_offset": 0,
                    "next_offset": 10,
                    "size_bytes": 100,
                    "has_offset_index": True,
                    "has_transaction_index": False,
                },
                {
                    "base_offset": 10,
                    "next_offset": 30,
                    "size_bytes": 2**31 - 1,
                    "has_offset_index": False,
                    "has_transaction_index": True,
                },
            ],
            "aborted": [{"producer_id": 7, "first_offset": 5, "last_offset": 40}],
        }
    ],
    "skipped": [{"partition": 4, "code": "NOT_LED", "reason": "another broker leads it"}],
}


def changed(path: list[Any], value: object) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def test_a_good_answer() -> None:
    answer = read_answer(GOOD, "orders")
    (partition,) = answer.partitions
    assert partition.segments[1].file_name(0, ".log") == "0-00000000000000000010.log"
    assert partition.aborted == (AbortedSpan(7, 5, 40),)
    assert answer.skipped == ((4, "NOT_LED", "another broker leads it"),)


SEGMENT = ["partitions", 0, "segments", 0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["id"], "../../../../etc/passwd0123456789"),
        (["id"], "0123456789ABCDEF" * 2),
        (["id"], ""),
        (["id"], 7),
        (["topic"], "users"),
        (["topic_id"], None),
        (["directory"], "x" * 4_097),
        (["directory"], "/data\0"),
        (["directory"], KeyError),
        (["partitions"], {}),
        (["partitions"], [None]),
        (["partitions"], [GOOD["partitions"][0]] * 2),
        (["partitions"], [GOOD["partitions"][0]] * (LEASE_PARTITIONS_MAX + 1)),
        (["partitions", 0, "partition"], -1),
        (["partitions", 0, "partition"], 2**31),
        (["partitions", 0, "partition"], True),
        (["partitions", 0, "partition"], "0"),
        (["partitions", 0, "leader_epoch"], -1),
        (["partitions", 0, "log_start_offset"], -1),
        (["partitions", 0, "log_start_offset"], KeyError),
        (["partitions", 0, "segments"], "all"),
        ([*SEGMENT, "base_offset"], -1),
        ([*SEGMENT, "base_offset"], 10),
        ([*SEGMENT, "base_offset"], 1.0),
        ([*SEGMENT, "next_offset"], 0),
        ([*SEGMENT, "next_offset"], 11),
        ([*SEGMENT, "next_offset"], 2**63),
        ([*SEGMENT, "size_bytes"], 0),
        ([*SEGMENT, "size_bytes"], 2**31),
        ([*SEGMENT, "has_offset_index"], 1),
        ([*SEGMENT, "has_transaction_index"], KeyError),
        (["partitions", 0, "aborted", 0, "first_offset"], 40),
        (["partitions", 0, "aborted", 0, "producer_id"], -1),
        (["partitions", 0, "aborted"], [GOOD["partitions"][0]["aborted"][0]] * 10_001),
        (["skipped"], [{"partition": 0}]),
        (["skipped"], [{"partition": 0, "reason": "another broker leads it"}]),
    ],
)
def test_other_answers_are_refused(path: list[Any], value: object) -> None:
    with pytest.raises(LeaseAnswerError, match="malformed"):
        read_answer(changed(path, value), "orders")


def test_too_many_segments_are_refused() -> None:
    segments = [
        {**GOOD["partitions"][0]["segments"][0], "base_offset": n, "next_offset": n + 1}
        for n in range(6_000)
    ]
    partitions = [
        {**GOOD["partitions"][0], "partition": number, "segments": segments} for number in (0, 1)
    ]
    with pytest.raises(LeaseAnswerError, match="more than 10000 segments"):
        read_answer({**GOOD, "partitions": partitions}, "orders")


@pytest.mark.parametrize(
    ("pairs", "count"),
    [
        ([(4, 100), (9, 200)], 2),
        ([(4, 100), (4, 200)], 1),
        ([(4, 100), (9, 100)], 1),
        ([(4, 0)], 0),
        ([(4, 1_000)], 0),
        ([(4, 999)], 1),
        ([(4, 100), (3, 200), (9, 300)], 1),
    ],
)
def test_offset_entries_are_used_while_they_rise(pairs: list[tuple[int, int]], count: int) -> None:
    data = b"".join(struct.pack(">II", *pair) for pair in pairs)
    found = read_offset_index(data + b"\0\0\0", 1_000, 1_000)
    assert found == [IndexEntry(1_000 + offset, position) for offset, position in pairs[:count]]


@pytest.mark.parametrize(("version", "first", "last"), [(1, 0, 5), (0, 5, 5), (0, -1, 5)])
def test_a_transaction_index_must_be_whole(version: int, first: int, last: int) -> None:
    good = struct.pack(">hqqqq", 0, 7, 1, 5, 6)
    assert read_transaction_index(good * 2, "x") == [AbortedSpan(7, 1, 5)] * 2
    for data in (good + struct.pack(">hqqqq", version, 7, first, last, 6), good[:-1]):
        with pytest.raises(CorruptIndexError):
            read_transaction_index(data, "x")


def test_aborted_transactions_with_records_in_a_range() -> None:
    spans = [AbortedSpan(1, 0, 5), AbortedSpan(2, 3, 9), AbortedSpan(3, 8, 20)]
    assert aborted_within(spans, 0, 100) == tuple(spans)
    assert aborted_within(spans, 5, 8) == (spans[0], spans[1])
    assert aborted_within(spans, 6, 8) == (spans[1],)
    assert aborted_within(spans, 10, 11) == (spans[2],)
    assert aborted_within(spans, 21, 30) == ()
