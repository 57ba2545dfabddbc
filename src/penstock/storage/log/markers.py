"""Appends the marker that ends a transaction in one partition.

A marker is handled as every batch: it is decided when it is appended and counts when it is
committed. An abort is also added to the segment's index, in the same step, so that both are synced
together. It does NOT decide how a transaction ends: its coordinator does.
"""

from penstock.records.batch import read_header
from penstock.records.control import Marker, build_marker
from penstock.records.validation import ValidatedBatch
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.partition_log import PartitionLog


def append_marker(
    log: PartitionLog,
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    leader_epoch: int,
    now_ms: int,
    is_strict: bool,
) -> AppendInfo:
    """Append the end of a producer's transaction.

    Raises `InvalidProducerEpochError` for an old epoch, and with `is_strict` for the epoch of an
    open transaction's records too; `FencedTransactionCoordinatorError` for an old coordinator.
    """
    buffer = build_marker(
        marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms
    )
    header, producers = read_header(buffer), log.producers
    producers.check_marker(header, marker, is_strict=is_strict)
    aborted = None
    if not marker.is_commit:
        aborted = producers.aborted_by(producer_id, log.end_offset)
    batch = ValidatedBatch(header, memoryview(buffer), now_ms, 0)
    info = log.append(batch, leader_epoch=leader_epoch)
    producers.entries[producer_id].coordinator_epoch = marker.coordinator_epoch
    if aborted is not None:
        log.active.transactions.append(aborted)
    return info
