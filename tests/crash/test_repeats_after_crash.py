"""A producer repeats unacknowledged batches after a crash: five batches, none is duplicated.

A client keeps up to five batches in flight. When the broker dies after writing them and before
answering, the client sends all of them again, the oldest first. Every one must be known again,
wherever a segment ended and a snapshot was taken in between.
"""

import pytest

from penstock.core.limits import PRODUCER_BATCHES_REMEMBERED
from penstock.storage.log.partition_log import PartitionLog
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import let_go, new_log, open_manager, producer_batch, sync


def reopened(disk: MemoryDisk) -> PartitionLog:
    (log,) = open_manager(disk).logs.values()
    return log


@pytest.mark.parametrize("rolled_after", range(PRODUCER_BATCHES_REMEMBERED + 1))
def test_every_batch_in_flight_is_known_again(rolled_after: int) -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(producer_batch(0), leader_epoch=0)
    for number in range(1, PRODUCER_BATCHES_REMEMBERED + 1):
        if number == rolled_after:
            log.roll()
        log.append(producer_batch(number), leader_epoch=0)
    if rolled_after == 0:
        log.roll()
    sync(manager)
    let_go(manager)
    found = reopened(disk)
    for number in range(1, PRODUCER_BATCHES_REMEMBERED + 1):
        answer = found.append(producer_batch(number), leader_epoch=0)
        assert answer.is_duplicate
        assert answer.base_offset == number
    assert found.append(producer_batch(6), leader_epoch=0).base_offset == 6
    found.validate()
