"""A full disk and groups: who needs a record is told to come back, and nobody else notices.

One partition holds all groups, so that one shard would take all of them with it.
"""

import logging

import pytest

from penstock.core.settings import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.testing.broker import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.groups import beat, join, join_request, leave, ready, sync
from tests.faults.wire import FaultyRoom

SETTINGS = settings_of(
    {
        "node.storage": "memory",
        "listener.port": 0,
        "groups.initial_rebalance_delay_ms": 0,
        "groups.offsets_partitions": 1,
    }
)


def consumer_heartbeat(
    asker: Asker, member_id: str, epoch: int = 0
) -> ConsumerGroupHeartbeatResponse:
    is_joining = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if is_joining else -1,
        subscribed_topic_names=("t",) if is_joining else None,
        topic_partitions=() if is_joining else None,
    )
    return asker.ask(request, 1, ConsumerGroupHeartbeatResponse)


def test_who_needs_no_record_goes_on_and_the_others_come_back(
    disk: FaultyRoom, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(SETTINGS, filesystem=disk) as broker, Asker(broker.port) as asker:
        asker.create("t")
        ready(asker, "old")
        first = join(asker, "old")
        sync(asker, "old", first)
        consumer = consumer_heartbeat(asker, "a")
        with asker.another() as waiting:
            # It waits for the first member, in the same shard.
            waiting.send(join_request("old"), 3)
            assert waiting.is_silent(0.05)
            disk.bytes_left = 0
            codes = [
                consumer_heartbeat(asker, "b").error_code,
                asker.ask(join_request("other"), 9, JoinGroupResponse).error_code,
            ]
            assert codes == [ErrorCode.NOT_COORDINATOR] * 2
            assert consumer_heartbeat(asker, "a", consumer.member_epoch).error_code == 0
            assert beat(asker, "old", first) == ErrorCode.REBALANCE_IN_PROGRESS
            assert waiting.is_silent(0.05), "nobody threw the shard away"
            disk.bytes_left = None
            leave(asker, "old", first.member_id)
            assert waiting.receive(JoinGroupResponse).error_code == ErrorCode.NONE
        assert consumer_heartbeat(asker, "b").error_code == ErrorCode.NONE
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
