"""Notes as text: the same after a round, bounded, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.note import (
    NOTE_CHARACTERS_MAX,
    CommitCounts,
    CommitNote,
    HeldPartition,
    NoteError,
    NoteKind,
    read_note,
    write_note,
)

LONG = 2**63 - 1
offsets = st.lists(st.integers(0, LONG), min_size=3, max_size=3).map(sorted)
held_partitions = st.builds(
    lambda three, epoch: HeldPartition(three[0], three[1], three[2], epoch),
    offsets,
    st.integers(-1, 2**31 - 1),
)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
notes = st.builds(
    CommitNote,
    pipeline=names,
    kind=st.sampled_from(NoteKind),
    run=names,
    epoch=st.integers(1, LONG),
    sequence=st.integers(1, LONG),
    held=st.dictionaries(partitions, held_partitions, max_size=20),
    cluster_id=st.none() | names,
    counts=st.builds(
        CommitCounts,
        st.integers(0, LONG),
        st.integers(0, LONG),
        st.dictionaries(names, st.integers(0, LONG), max_size=5),
    ),
)


def wide_note(partition_count: int, *, end: int = 123_456_789_012) -> CommitNote:
    held = {
        TopicPartition("orders", n): HeldPartition(0, end + n, end + 1_000 + 2 * n, 12)
        for n in range(partition_count)
    }
    return CommitNote(
        "orders", NoteKind.BATCH, "run", 4, 17, held, {"orders": "cu1"}, "c1", CommitCounts(5, 1)
    )


@given(notes)
def test_a_note_is_the_same_after_a_round(note: CommitNote) -> None:
    text = write_note(note)
    assert read_note(text) == note
    assert write_note(read_note(text)) == text


def test_the_text_is_as_documented() -> None:
    held = {
        TopicPartition("orders", 0): HeldPartition(0, 100, 200, 3),
        TopicPartition("orders", 1): HeldPartition(0, 100, 180, 3),
    }
    note = CommitNote(
        "orders",
        NoteKind.BATCH,
        "5f0c",
        4,
        17,
        held,
        {"orders": "cu1"},
        "MkU3",
        CommitCounts(178, 2, {"positive_amount": 2}),
    )
    assert json.loads(write_note(note)) == {
        "version": 1,
        "pipeline": "orders",
        "kind": "batch",
        "run": "5f0c",
        "epoch": 4,
        "sequence": 17,
        "cluster_id": "MkU3",
        "topics": {
            "orders": {
                "id": "cu1",
                "ends": [200, 180],
                "begins": 0,
                "counts": [100, 80],
                "epochs": 3,
            }
        },
        "rows": 178,
        "rejects": 2,
        "expectations": {"positive_amount": 2},
    }


def test_a_thousand_partitions_are_small_and_too_many_are_refused() -> None:
    assert len(write_note(wide_note(1_000))) < 25_000
    assert len(write_note(wide_note(4_000, end=LONG - 10_000))) < NOTE_CHARACTERS_MAX
    with pytest.raises(NoteError, match="several pipelines"):
        write_note(wide_note(40_000))


@pytest.mark.parametrize(
    "change",
    [
        {"version": None},
        {"version": 0},
        {"kind": "else"},
        {"epoch": 0},
        {"epoch": True},
        {"sequence": "1"},
        {"pipeline": ""},
        {"topics": []},
        {"topics": {"t": {"ends": [1], "begins": 2, "counts": 1, "epochs": 1}}},
        {"topics": {"t": {"ends": [5], "begins": 0, "counts": 6, "epochs": 1}}},
        {"topics": {"t": {"ends": [5, 6], "begins": [0], "counts": 1, "epochs": 1}}},
        {
            "topics": {
                "t": {"ends": [5, 6], "partitions": [1, 1], "begins": 0, "counts": 1, "epochs": 1}
            }
        },
        {"rows": -1},
        {"expectations": 3},
        {"cluster_id": 5},
    ],
)
def test_what_is_no_note_is_told(change: dict[str, object]) -> None:
    document = {**json.loads(write_note(wide_note(2))), **change}
    with pytest.raises(NoteError, match="cannot be read"):
        read_note(json.dumps(document))


def test_other_text_is_told() -> None:
    for text in ("", "[]", "{", "[" * 100_000, write_note(wide_note(2))[:-1]):
        with pytest.raises(NoteError, match="cannot be read"):
            read_note(text)


def test_a_newer_version_is_told() -> None:
    document = {**json.loads(write_note(wide_note(2))), "version": 2}
    with pytest.raises(NoteError, match="newer Penstock"):
        read_note(json.dumps(document))
