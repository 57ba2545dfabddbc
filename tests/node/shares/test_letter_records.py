"""Dead letters as records: the number in a batch, copies, and headers that producers forged."""

import pytest

from penstock.coordinator.shares.delivery.runs import EXHAUSTED, REJECTED
from penstock.coordinator.shares.delivery.share_delivery import Letter
from penstock.node.shares import letter_records
from penstock.node.shares.letter_records import Copies, Source, build_letters, copied_records
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Header, Record

SOURCE = Source("packing", "orders", 3)
LETTERS = (Letter(5, 6, 2, EXHAUSTED), Letter(9, 9, 1, REJECTED))


def built(copies: Copies | None, batch_bytes_max: int = 10_000) -> tuple[list[Record], int]:
    batch, count = build_letters(
        SOURCE, LETTERS, copies, now_ms=77, batch_bytes_max=batch_bytes_max
    )
    assert len(batch) <= batch_bytes_max
    return read_records(batch), count


def offset_of(record: Record) -> str:
    return dict(record.headers)["__dlq.errors.offset"].decode()  # type: ignore[union-attr]


def test_letters_without_copies() -> None:
    records, count = built(None)
    assert count == 3
    assert [offset_of(one) for one in records] == ["5", "6", "9"]
    assert all(one.timestamp_ms == 77 for one in records)
    assert records[0].headers == (
        Header("__dlq.errors.topic", b"orders"),
        Header("__dlq.errors.partition", b"3"),
        Header("__dlq.errors.offset", b"5"),
        Header("__dlq.errors.group", b"packing"),
        Header("__dlq.errors.delivery.count", b"2"),
        Header("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    )


def test_a_batch_has_the_letters_that_fit_and_at_least_one() -> None:
    records, count = built(None, 700)
    assert 0 < count < 3
    assert [offset_of(one) for one in records] == ["5", "6", "9"][:count]
    _, alone = build_letters(SOURCE, LETTERS, None, now_ms=77, batch_bytes_max=1)
    assert alone == 1


def test_letters_behind_the_copies_wait_for_the_next_batch() -> None:
    copies = Copies({5: Record(b"k", b"v", (Header("__dlq.errors.topic", b"forged"),), 1, 5)}, 6)
    records, count = built(copies)
    assert count == 2
    assert (records[0].key, records[0].value, records[1].value) == (b"k", b"v", None)
    assert [one for one in records[0].headers if one.key == "__dlq.errors.topic"] == [
        Header("__dlq.errors.topic", b"orders")
    ]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_copies_of_stored_batches(codec: int) -> None:
    first = build_batch([Record(b"%d" % one, b"v") for one in range(4)], base_offset=4, codec=codec)
    second = build_batch([Record(b"%d" % one, b"v") for one in range(4)], base_offset=10)
    copies = copied_records(bytes(first + second), {5, 6, 9, 20}, 5)
    assert sorted(copies.records) == [5, 6]
    assert copies.last_offset == 13
    assert copied_records(b"", {5}, 5) == Copies({}, 5)


def test_damaged_and_very_large_batches_have_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([Record(b"k", b"v"), Record(b"k", b"w")], base_offset=5)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    assert copied_records(bytes(damaged), {5, 6}, 5) == Copies({}, 6)
    monkeypatch.setattr(letter_records, "BATCH_RECORDS_MAX", 1)
    assert copied_records(bytes(batch), {5, 6}, 5) == Copies({}, 6)


def test_the_bytes_of_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_records, "COPY_BYTES_MAX", 150)
    batch = build_batch([Record(b"k", b"v" * 50) for _ in range(4)], base_offset=5)
    copies = copied_records(bytes(batch), {5, 6, 7, 8}, 5)
    assert (sorted(copies.records), copies.last_offset) == ([5], 5)
