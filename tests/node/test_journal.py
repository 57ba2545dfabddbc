"""`PartitionJournal`: a change that is too large is refused before all of it is in memory."""

from collections.abc import Iterator, Sequence
from typing import cast, overload

import pytest

from penstock.coordinator.groups.offsets.requests import offset_tombstone
from penstock.coordinator.shard import StoredRecord
from penstock.core.errors import BatchTooLargeError
from penstock.core.limits import COORDINATOR_BATCH_BYTES_MAX
from penstock.node.coordination.journal import PartitionJournal
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.stored.codec import decode_group_record
from penstock.storage.service import StorageService
from tests.replication.replicas import Node
from tests.storage.logs import Clock

LONG = "g" * 32_000


class Many(Sequence[StoredRecord]):
    """A hundred thousand records that know how many of them were looked at."""

    def __init__(self) -> None:
        self.seen = 0

    def __len__(self) -> int:
        return 100_000

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...
    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        raise AssertionError("they are taken one after the other")

    def __iter__(self) -> Iterator[StoredRecord]:
        for number in range(len(self)):
            self.seen += 1
            yield offset_tombstone(LONG, "t", number)


def test_a_change_that_is_too_large_is_refused_as_soon_as_it_is() -> None:
    node = Node()
    storage = cast("StorageService", None)
    skipped = SkippedRecords(Clock())
    journal = PartitionJournal(node.partition, node.replicas, storage, decode_group_record, skipped)
    records = Many()
    with pytest.raises(BatchTooLargeError, match="100000 records"):
        journal.append(records, None, 0)
    assert records.seen <= COORDINATOR_BATCH_BYTES_MAX // len(LONG) + 1
    assert journal.end_offset == 0
