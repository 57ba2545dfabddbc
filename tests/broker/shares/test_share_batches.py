"""The batches of a read: their offsets, the ones nobody gets, and the bytes that are sent."""

from penstock.broker.shares.share_batches import ReadBatches
from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.records.batch import patch_for_append
from penstock.records.control import Marker, build_marker
from penstock.storage.log.open_transactions import AbortedTransaction
from tests.broker.handlers.asker import batch_of


def stored(first: int, *values: bytes, producer_id: int = -1) -> bytes:
    is_transactional = producer_id >= 0
    data = bytearray(
        batch_of(
            *values,
            producer_id=producer_id,
            sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        )
    )
    patch_for_append(data, 0, base_offset=first, leader_epoch=0)
    return bytes(data)


def test_offsets() -> None:
    records = stored(5, b"a", b"b") + stored(7, b"c")
    assert list(ReadBatches(records)) == [FetchedBatch(5, 6), FetchedBatch(7, 7)]


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    records = stored(5, b"a") + stored(6, b"b")[:-1]
    assert list(ReadBatches(records)) == [FetchedBatch(5, 5)]


def test_batches_that_no_member_gets() -> None:
    marker = bytearray(
        build_marker(Marker(True, 0), producer_id=3, producer_epoch=0, timestamp_ms=0)
    )
    patch_for_append(marker, 0, base_offset=2, leader_epoch=0)
    records = stored(0, b"a", producer_id=3) + stored(1, b"b", producer_id=4) + bytes(marker)
    aborted = [AbortedTransaction(3, 0, 1, 2)]
    found = list(ReadBatches(records, aborted))
    assert [batch.is_dead for batch in found] == [True, False, False], "members get the marker"
    found = list(ReadBatches(records, aborted, archives_control=True))
    assert [batch.is_dead for batch in found] == [True, False, True]


def test_aborted_transactions_of_one_producer() -> None:
    records = b"".join(stored(offset, b"a", producer_id=3) for offset in (0, 2, 4, 6))
    aborted = [AbortedTransaction(3, 4, 5, 6), AbortedTransaction(3, 0, 1, 2)]
    found = list(ReadBatches(records, aborted))
    assert [batch.is_dead for batch in found] == [True, False, True, False]


def test_an_answer_does_not_keep_the_whole_read() -> None:
    parts = [stored(number, b"a") for number in range(4)]
    records = b"".join(parts)
    batches = ReadBatches(records)
    list(batches)
    assert batches.slice([Acquired(1, 1, 1)]).obj is not records
    assert batches.slice([Acquired(0, 3, 1)]).obj is records


def test_only_batches_with_acquired_records_are_sent() -> None:
    parts = [stored(0, b"a", b"b"), stored(2, b"c"), stored(3, b"d")]
    batches = ReadBatches(b"".join(parts))
    list(batches)
    assert bytes(batches.slice([Acquired(1, 1, 1)])) == parts[0]
    assert bytes(batches.slice([Acquired(2, 2, 1)])) == parts[1]
    assert bytes(batches.slice([Acquired(1, 1, 1), Acquired(3, 3, 1)])) == b"".join(parts)
