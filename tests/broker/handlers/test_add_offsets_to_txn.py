"""AddOffsetsToTxn: the group's partition becomes part of the transaction."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional, find_coordinator


@pytest.fixture
def transactional(asker: Asker) -> Transactional:
    find_coordinator(asker, "g", 0)
    return Transactional(asker, fresh_name("bank")).init()


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_the_groups_partition_is_added(transactional: Transactional, version: int) -> None:
    assert transactional.ask_add_offsets("g", version) == ErrorCode.NONE
    request = DescribeTransactionsRequest(transactional_ids=(transactional.name,))
    answer = transactional.asker.ask(request, 0, DescribeTransactionsResponse)
    (topic,) = answer.transaction_states[0].topics
    assert topic.topic == "__consumer_offsets"
    assert len(topic.partitions) == 1


def test_strangers_are_refused(transactional: Transactional) -> None:
    producer_id, epoch = transactional.producer
    later = (producer_id, epoch + 1)
    assert transactional.ask_add_offsets("g", 2, later) == ErrorCode.PRODUCER_FENCED
    assert transactional.ask_add_offsets("g", 1, later) == ErrorCode.INVALID_PRODUCER_EPOCH
    other = (producer_id + 1_000_000, epoch)
    assert transactional.ask_add_offsets("g", 4, other) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    transactional.name = ""
    assert transactional.ask_add_offsets("g") == ErrorCode.INVALID_REQUEST
