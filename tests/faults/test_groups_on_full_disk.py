"""A full disk and groups: requests that write get a retriable error, and no others are affected.

One partition holds all groups, so that one shard would take all of them with it.
"""

import logging
from dataclasses import replace

import pytest

from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.testing.broker import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.groups import (
    beat,
    commit,
    commit_request,
    join,
    join_request,
    leave,
    ready,
    sync,
)
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


@pytest.mark.parametrize("version", [9, 10])
def test_a_commit_is_refused_for_each_of_its_partitions(disk: FaultyRoom, version: int) -> None:
    with Broker(SETTINGS, filesystem=disk) as broker, Asker(broker.port) as asker:
        topic_id = asker.create("t", partitions=2)
        ready(asker, "g")
        by_id = version >= 10
        offsets = {("t", 0): 1, ("t", 1): 2}
        request = commit_request("g", offsets)
        (topic,) = request.topics
        if by_id:
            topic = replace(topic, name="", topic_id=topic_id)
        disk.bytes_left = 0
        refused = asker.ask(replace(request, topics=(topic,)), version, OffsetCommitResponse)
        disk.bytes_left = None
        (answered,) = refused.topics
        assert (answered.topic_id if by_id else answered.name) == (topic_id if by_id else "t")
        codes = {part.partition_index: part.error_code for part in answered.partitions}
        assert codes == dict.fromkeys((0, 1), ErrorCode.NOT_COORDINATOR)
        assert commit(asker, "g", offsets) == dict.fromkeys(offsets, ErrorCode.NONE)
