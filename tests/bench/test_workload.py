"""Wrong workloads are refused before anything starts, with all problems and their remedies."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.bench.workload import Workload
from penstock.core.errors import ConfigError

WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"duration_seconds": 0.1}, "too short to mean anything"),
    ({"kind": "speed"}, "Take one of produce, consume, end-to-end, groups"),
    ({"size_bytes": 100_000, "batch_records": 11}, "at most 10 records"),
    ({"kind": "end-to-end", "size_bytes": 15}, "Take 16 bytes or more"),
    ({"kind": "end-to-end", "acks": 0}, "Take acks 1 or all"),
    ({"kind": "consume", "rate": 10.0}, "Leave the rate out"),
    ({"clients": 0}, "clients 0 is outside"),
    ({"in_flight": 6}, "1 to 5"),
    ({"rate": 0.0}, "rate 0 is outside"),
    ({"size_bytes": 0}, "size 0 is outside of what is possible: 1 to 1,000,000"),
    ({"rate": 1e10}, "rate 10,000,000,000 is outside of what is possible: 0.001 to 1,000,000,000"),
    ({"keys": "all"}, "none, uniform, zipf"),
    ({"acks": 2}, "acks 2 is not known"),
    ({"compression": "brotli"}, "none, gzip, snappy, lz4, zstd"),
]


@pytest.mark.parametrize(("values", "words"), WRONG, ids=lambda one: str(one)[:40])
def test_it_says_what_is_wrong_and_what_to_do(values: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Workload(**values)


def test_all_problems_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Workload(duration_seconds=0.1, clients=0, keys="all")
    assert len(str(caught.value).splitlines()) == 3


def test_a_count_needs_no_duration() -> None:
    assert Workload(count=5, duration_seconds=0.0).document()["duration_seconds"] is None


def test_the_whole_way_is_timed_one_by_one_unless_there_is_a_rate() -> None:
    assert Workload(kind="end-to-end").requests_in_flight == 1
    assert Workload(kind="end-to-end", rate=10.0).requests_in_flight == 5
    assert Workload().requests_in_flight == 5
