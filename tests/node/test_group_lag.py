"""The lag of groups is a metric of the broker: no exporter is needed."""

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, produce_request

FIND_COORDINATOR_VERSION = 4
OFFSET_COMMIT_VERSION = 9


def test_the_lag_of_a_group_is_a_metric() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        asker.create("orders")
        for _ in range(5):
            asker.ask(produce_request("orders", {0: batch_of(b"x")}), NAMED, ProduceResponse)
        asker.ask(
            FindCoordinatorRequest(coordinator_keys=("g",)),
            FIND_COORDINATOR_VERSION,
            FindCoordinatorResponse,
        )
        assert not any(name.startswith("group_lag_records") for name in broker.metrics())
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
        topic = OffsetCommitRequestTopic(name="orders", partitions=(partition,))
        answer = asker.ask(
            OffsetCommitRequest(group_id="g", member_id="", topics=(topic,)),
            OFFSET_COMMIT_VERSION,
            OffsetCommitResponse,
        )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        name = 'group_lag_records{group="g",topic="orders",partition="0"}'
        assert broker.metrics()[name] == 3
