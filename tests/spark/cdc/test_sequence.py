"""The order of changes as text, and the changes that are older than what a table has."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.errors import OptionError
from penstock.spark.tables.files import deleted_keys
from penstock.spark.tables.files.deleted_keys import (
    DeletedKeysLostError,
    read_keys,
    remembered_after,
    remove_unreferenced,
    together,
    write_keys,
)
from penstock.spark.tables.files.upsert import newest_of_each, not_older
from penstock.spark.tables.values.cdc.sequence import require_ordered, sequence_texts

NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 1000))


def texts_of(parts: Sequence[pa.Array], count: int) -> list[str | None]:
    zeros = pa.array([0] * count, pa.int32())
    found: list[str | None] = sequence_texts(parts, zeros, zeros.cast(pa.int64())).to_pylist()
    return found


def rank(value: object) -> tuple[int, object]:
    return (0, 0) if value is None else (1, value)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_numbers_compare_as_their_texts(pairs: list[tuple[int | None, int | None]]) -> None:
    parts = [pa.array([pair[number] for pair in pairs], pa.int64()) for number in (0, 1)]
    texts = texts_of(parts, len(pairs))
    for one, text in zip(pairs, texts, strict=True):
        assert (text is None) == (one == (None, None))
    known = [(pair, text) for pair, text in zip(pairs, texts, strict=True) if text is not None]
    by_pair = sorted(known, key=lambda one: [rank(value) for value in one[0]])
    assert [text for _, text in by_pair] == sorted(text for _, text in known)


@given(
    st.lists(st.tuples(st.text(alphabet='ab !"~09', max_size=4), st.integers(0, 20)), max_size=8)
)
def test_texts_compare_as_texts_and_then_by_the_next_field(pairs: list[tuple[str, int]]) -> None:
    pairs = [(f"log{text}", number) for text, number in pairs]  # not all digits
    parts = [
        pa.array([text for text, _ in pairs], pa.string()),
        pa.array([number for _, number in pairs], pa.int64()),
    ]
    texts = texts_of(parts, len(pairs))
    by_text = dict(zip(map(str, texts), pairs, strict=True))
    found = [by_text[text] for text in sorted(by_text)]
    assert found == sorted(set(pairs))


def test_forms_of_positions() -> None:
    given_texts = ['[null,"9"]', '["9","9"]', '["9","10"]', '["10","1"]']
    lists = [str(one) for one in texts_of([pa.array(given_texts)], 4)]
    assert lists == sorted(lists)
    digits = texts_of([pa.array(["9", "10", "26687480", None])], 4)
    assert digits == ["a9@a0a0", "b10@a0a0", "h26687480@a0a0", None]
    times = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert texts_of([times], 1) == ["p1767225600000000@a0a0"]


def test_records_have_different_orders() -> None:
    same = pa.array([5, 5, 5], pa.int64())
    partitions, offsets = pa.array([0, 0, 1], pa.int32()), pa.array([9, 10, 3], pa.int64())
    texts = sequence_texts([same], partitions, offsets).to_pylist()
    assert texts == sorted(set(texts))


def test_a_type_without_an_order() -> None:
    require_ordered(pa.decimal128(20, 0), "n")
    with pytest.raises(OptionError, match="does not order changes"):
        require_ordered(pa.float64(), "n")


# --- Deleted keys ---


def keys_of(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([key for key, _ in pairs], pa.int64()),
            "_sequence": pa.array([text for _, text in pairs], pa.string()),
        }
    )


@pytest.mark.parametrize("key", [("id",), ("id", "part")])
def test_the_newest_change_of_each_key_in_any_batches(key: tuple[str, ...]) -> None:
    """Rows and deletions, in batches of any size, against a dictionary."""
    chance = random.Random(7)
    changes = [(chance.randrange(6), f"b{at:02}", chance.random() < 0.4) for at in range(90)]
    expected = {one[0]: one for one in changes if not one[2]}
    for one in changes:
        if one[2] and one[0] in expected and expected[one[0]][1] < one[1]:
            expected.pop(one[0])
    chance.shuffle(changes)
    rows: dict[int, str] = {}
    held: pa.Table | None = None
    while changes:
        size = chance.choice([1, 4, 9])
        some, changes = changes[:size], changes[min(size, 4) :]  # of 9, the last 5 come twice
        last = {one[0]: one for one in sorted(some, key=lambda one: one[1])}
        table = _changes(list(last.values()), key)
        for known in (held, _held(rows, key)):
            if known is not None:
                table = table.filter(not_older(table, known, key))
        held = remembered_after(held, table, key)
        for change in table.to_pylist():
            rows.pop(change["id"], None)
            if not change["_change_deleted"]:
                rows[change["id"]] = change["_sequence"]
    assert rows == {number: one[1] for number, one in expected.items()}


def _changes(changes: list[tuple[int, str, bool]], key: Sequence[str]) -> pa.Table:
    table = keys_of(*(one[:2] for one in changes))
    if "part" in key:
        table = table.append_column("part", table["id"].cast(pa.string()))
    gone = pa.array([one[2] for one in changes], pa.bool_())
    return table.append_column("_change_deleted", gone).select(
        [*key, "_sequence", "_change_deleted"]
    )


def _held(rows: dict[int, str], key: Sequence[str]) -> pa.Table:
    table = _changes([(one, text, False) for one, text in rows.items()], key)
    return newest_of_each(table.drop(["_change_deleted"]), key)


def test_only_the_newest_deletions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_keys, "KEYS_MAX", 2)
    last = _changes([(1, "b10", True), (2, "b30", True), (3, "b20", True)], ("id",))
    held = remembered_after(None, last, ("id",))
    assert sorted(held["id"].to_pylist()) == [2, 3]


def test_files_of_deleted_keys(tmp_path: Path) -> None:
    folder = str(tmp_path / "_changes" / "_deleted_keys")
    first, second = (write_keys(folder, keys_of((1, text))) for text in ("a1", "a2"))
    found = together([read_keys(folder, first), read_keys(folder, second)], ("id",))
    assert found is not None
    assert found.to_pylist() == [{"id": 1, "_sequence": "a2"}]
    assert together([], ("id",)) is None
    later_ms = 10**15
    newest = write_keys(folder, keys_of((1, "a3")))
    assert remove_unreferenced(folder, {first}, 0) == 0
    # The newest file may have lost its last reference a moment ago.
    assert remove_unreferenced(folder, {first}, later_ms) == 1
    assert read_keys(folder, newest).num_rows == 1
    assert read_keys(folder, first).num_rows == 1
    with pytest.raises(DeletedKeysLostError, match="Restore the file"):
        read_keys(folder, second)
