"""The comparison of replicas and the measure of gaps find differences; fast, without processes."""

from pathlib import Path

import pytest

from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.chaos_cluster.replicas import compare_replicas
from tests.chaos_cluster.workload import TimedLedger, lost_without_offset
from tests.crash.ledger import Sent


def batch(offset: int, value: bytes = b"value") -> bytes:
    return bytes(build_batch([Record(None, value, (), 1)], base_offset=offset))


def replica(folder: Path, broker: int, *segments: bytes) -> tuple[int, Path]:
    data_dir = folder / str(broker)
    partition = data_dir / "topic-0"
    partition.mkdir(parents=True)
    for number, segment in enumerate(segments):
        (partition / f"{number:020}.log").write_bytes(segment)
    return broker, data_dir


def test_replicas_may_roll_at_different_offsets(tmp_path: Path) -> None:
    first = replica(tmp_path, 1, batch(0) + batch(1), batch(2))
    second = replica(tmp_path, 2, batch(0), batch(1) + batch(2))
    found = compare_replicas(dict([first, second]), 2)
    assert (found.partitions, found.batches, found.differences) == (1, 3, [])


def test_room_behind_the_last_batch_is_no_difference(tmp_path: Path) -> None:
    first = replica(tmp_path, 1, batch(0) + batch(1) + bytes(4096))
    second = replica(tmp_path, 2, batch(0) + batch(1))
    assert not compare_replicas(dict([first, second]), 2).differences


def test_a_replica_may_begin_later(tmp_path: Path) -> None:
    first = replica(tmp_path, 1, batch(0) + batch(1))
    second = replica(tmp_path, 2, batch(1))
    assert not compare_replicas(dict([first, second]), 2).differences


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (batch(0) + batch(1, b"other"), "differ at offset 1"),
        (batch(0), "has 2 batches, broker 2 has 1"),
        (batch(0) + batch(1)[:-1] + b"x", "bad checksum"),
        (batch(0) + batch(1) + batch(1), "1 follows 2"),
        (batch(0) + batch(1)[:-1], "bad checksum"),
        (batch(0) + batch(1) + b"garbage" * 20, "bad checksum"),
    ],
)
def test_a_difference_is_found(tmp_path: Path, other: bytes, found: str) -> None:
    first = replica(tmp_path, 1, batch(0) + batch(1))
    second = replica(tmp_path, 2, other)
    differences = compare_replicas(dict([first, second]), 2).differences
    assert found in "\n".join(differences)


def test_a_missing_replica_is_found(tmp_path: Path) -> None:
    assert compare_replicas(dict([replica(tmp_path, 1, batch(0))]), 3).differences == [
        "topic-0: replicas on [1], 3 expected"
    ]


def test_gaps_are_the_longest_times_without_an_acknowledgement() -> None:
    events = [(1.0, 0), (2.0, 1), (9.0, 0), (10.0, 1)]
    times = iter([moment for moment, _ in events])
    ledger = TimedLedger(lambda: next(times))
    for number, (_, partition) in enumerate(events):
        ledger.acknowledged(Sent("someone", number, partition), number)
    gaps = ledger.gaps(1.0, 10.0)
    assert (gaps.one_partition_seconds, gaps.all_seconds) == (8.0, 7.0)
    assert ledger.gaps(9.5, 12.0).one_partition_seconds == 2.5


def test_a_record_that_was_acknowledged_without_an_offset_must_be_there() -> None:
    ledger = TimedLedger()
    there, missing = Sent("confluent-kafka", 1, 0), Sent("confluent-kafka", 2, 0)
    ledger.gave_up(there, "None")
    ledger.gave_up(missing, "None")
    ledger.gave_up(Sent("confluent-kafka", 3, 0), "KafkaError{code=_MSG_TIMED_OUT}")
    assert len(ledger.given_up) == 1
    lost = list(lost_without_offset(frozenset(ledger.unplaced), {0: [(7, there.value())]}))
    assert lost == [f"lost: {missing}, acknowledged without an offset"]
