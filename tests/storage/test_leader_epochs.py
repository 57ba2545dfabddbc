"""Leader epochs: monotonic entries, the answers of KIP-101 and KIP-279, the checkpoint's text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import StorageError
from penstock.storage.log.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


def test_an_epoch_begins_once() -> None:
    made = LeaderEpochs()
    assert made.latest_epoch == -1
    assert made.assign(3, 10)
    assert not made.assign(3, 20)
    assert made.entries == (EpochEntry(3, 10),)


def test_an_epoch_without_records_is_replaced() -> None:
    made = epochs((1, 0), (2, 10))
    made.assign(5, 10)
    assert made.entries == (EpochEntry(1, 0), EpochEntry(5, 10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, EpochEnd(-1, -1)),
        (0, EpochEnd(0, 5)),
        (2, EpochEnd(2, 20)),
        (3, EpochEnd(2, 20)),
        (4, EpochEnd(4, 100)),
        (5, EpochEnd(-1, -1)),
    ],
)
def test_where_an_epoch_ends(asked: int, answer: EpochEnd) -> None:
    assert epochs((2, 5), (4, 20)).end_offset_for(asked, 100) == answer


def test_no_epochs_no_answer() -> None:
    assert LeaderEpochs().end_offset_for(0, 100) == EpochEnd(-1, -1)


def test_epoch_of_an_offset() -> None:
    made = epochs((2, 5), (4, 20))
    assert [made.epoch_at(offset) for offset in (4, 5, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_truncating_both_ends() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    assert made.truncate_end(20)
    assert not made.truncate_end(20)
    assert made.latest_epoch == 2
    assert made.truncate_start(12)
    assert made.entries == (EpochEntry(2, 12),)
    assert not made.truncate_start(12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_whatever_is_assigned_the_entries_grow_and_come_back(
    assigned: list[tuple[int, int]],
) -> None:
    made = LeaderEpochs()
    for epoch, offset in assigned:
        made.assign(epoch, offset)
        made.validate()
    assert LeaderEpochs.from_bytes(made.to_bytes()).entries == made.entries


@pytest.mark.parametrize(
    "data", [b"", b"1\n0\n", b"0\n2\n1 2\n", b"0\nx\n", b"0\n1\n1\n", b"\xff\n0\n"]
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        LeaderEpochs.from_bytes(data)


def test_kafkas_text() -> None:
    assert epochs((0, 0), (3, 1_200)).to_bytes() == b"0\n2\n0 0\n3 1200\n"
