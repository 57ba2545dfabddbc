"""DescribeQuorum: the voters of the metadata quorum."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from tests.broker.handlers.asker import Asker, fresh_name

METADATA = "__cluster_metadata"


def asked(*topics: tuple[str, tuple[int, ...]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=tuple(
            RequestTopicData(
                topic_name=name,
                partitions=tuple(RequestPartitionData(partition_index=index) for index in indexes),
            )
            for name, indexes in topics
        )
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_voter_that_leads_and_is_up_to_date(asker: Asker, version: int) -> None:
    answer = asker.ask(asked((METADATA, (0,))), version, DescribeQuorumResponse)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (METADATA, 0)
    assert partition.error_code == ErrorCode.NONE
    assert partition.leader_id == 1
    assert partition.leader_epoch >= 0
    (voter,) = partition.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset == partition.high_watermark > 0
    assert partition.observers == ()
    assert (voter.last_caught_up_timestamp > 0) == (version >= 1)
    assert [node.node_id for node in answer.nodes] == ([1] if version >= 2 else [])


def test_the_offset_grows_with_the_metadata(asker: Asker) -> None:
    def high_watermark() -> int:
        answer = asker.ask(asked((METADATA, (0,))), 2, DescribeQuorumResponse)
        return answer.topics[0].partitions[0].high_watermark

    before = high_watermark()
    asker.create(fresh_name())
    assert high_watermark() > before


@pytest.mark.parametrize("topic", [(METADATA, (1,)), ("nobody", (0,)), (METADATA, (0, 1))])
def test_anything_else_is_no_metadata(asker: Asker, topic: tuple[str, tuple[int, ...]]) -> None:
    answer = asker.ask(asked(topic), 2, DescribeQuorumResponse)
    assert answer.error_code == ErrorCode.NONE
    (found,) = answer.topics
    assert found.topic_name == topic[0]
    assert tuple(part.partition_index for part in found.partitions) == topic[1]
    for partition in found.partitions:
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partition.current_voters == ()


def test_nothing_asked(asker: Asker) -> None:
    assert asker.ask(asked(), 2, DescribeQuorumResponse).topics == ()
