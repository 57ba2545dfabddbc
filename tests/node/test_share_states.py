"""Share state on a disk: it survives a stop, a crash, and the deletion of records it replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from penstock.coordinator.shares.ports import ShareState, ShareSummary, StateBatch
from penstock.core.settings.tree import settings_of
from penstock.core.types import SHARE_STATE_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.share_states import SharePartitionAsker, share_partition
from tests.node.data import crash
from tests.node.test_transactions import until

TOPIC = "orders"
ACKNOWLEDGED = 2
EARLIEST = -2


@contextmanager
def started(data_dir: Path, **shares: object) -> Iterator[Asker]:
    values = {
        "node.data_dir": str(data_dir),
        "listener.port": 0,
        "shares.state_partitions": 1,
        **{f"shares.{key}": value for key, value in shares.items()},
    }
    with Broker(settings_of(values)) as broker, Asker(broker.port) as asker:
        yield asker


def queue_of(asker: Asker, topic_id: UUID) -> SharePartitionAsker:
    return share_partition(asker, topic_id, group="g")


@pytest.mark.parametrize("is_crash", [False, True], ids=["stop", "crash"])
def test_the_state_is_there_again(tmp_path: Path, is_crash: bool) -> None:
    path = tmp_path / "data"
    with started(path) as asker:
        topic_id = asker.create(TOPIC, 1)
        queue = queue_of(asker, topic_id)
        queue.initialize(2, 10)
        queue.read(leader_epoch=4)
        queue.write((10, 19, ACKNOWLEDGED, 1), state_epoch=2, leader_epoch=4, complete=10)
        before = (queue.read(), queue.summary())
        if is_crash:
            path = crash(path)
    with started(path) as asker:
        queue = queue_of(asker, topic_id)
        assert (queue.read(), queue.summary()) == before
        assert before == (
            ShareState(2, 10, (StateBatch(10, 19, ACKNOWLEDGED, 1),)),
            ShareSummary(2, 4, 10, 10),
        )
        assert queue.read(leader_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH


def log_start(asker: Asker) -> int:
    return asker.list_offsets(SHARE_STATE_TOPIC, {0: EARLIEST})[0].offset


def test_replaced_records_are_deleted(tmp_path: Path) -> None:
    with started(
        tmp_path, updates_per_snapshot=5, prune_interval_ms=10, cold_snapshot_interval_ms=20
    ) as asker:
        topic_id = asker.create(TOPIC, 1)
        queue = queue_of(asker, topic_id)
        queue.initialize(1, 0)
        for offset in range(20):
            assert queue.write((offset, offset, ACKNOWLEDGED, 1)) == ErrorCode.NONE
        # Twenty changes are at least three snapshots; the last of them may be one at rest.
        until(lambda: log_start(asker) >= 18)
        before = queue.read()
    assert before == ShareState(1, 0, (StateBatch(0, 19, ACKNOWLEDGED, 1),))
    with started(tmp_path) as asker:
        assert log_start(asker) >= 18
        assert queue_of(asker, topic_id).read() == before


def test_the_state_of_a_deleted_topic_is_deleted(tmp_path: Path) -> None:
    with started(tmp_path, prune_interval_ms=10) as asker:
        topic_id = asker.create(TOPIC, 1)
        queue = queue_of(asker, topic_id)
        queue.initialize(1, 0)
        asker.delete(TOPIC)
        until(lambda: queue.read() == ErrorCode.INVALID_REQUEST)
        until(lambda: log_start(asker) == 2)
