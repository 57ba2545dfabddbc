"""The elements of a message are counted at every depth, and no further than needed."""

import pytest

from penstock.protocol.element_count import has_more_elements
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.metadata import MetadataRequest


def answer(topics: int, partitions: int, aborted: int) -> FetchResponse:
    transactions = (AbortedTransaction(producer_id=1, first_offset=2),) * aborted
    data = PartitionData(
        partition_index=0, high_watermark=0, aborted_transactions=transactions, records=b""
    )
    topic = FetchableTopicResponse(topic="t", partitions=(data,) * partitions)
    return FetchResponse(responses=(topic,) * topics)


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (answer(0, 0, 0), 0),
        (answer(3, 0, 0), 3),
        (answer(2, 5, 0), 12),
        (answer(2, 5, 4), 52),
        (HeartbeatResponse(), 0),
        (MetadataRequest(topics=None), 0),
    ],
)
def test_elements_of_all_depths(message: FetchResponse, count: int) -> None:
    assert not has_more_elements(message, count)
    if count:
        assert has_more_elements(message, count - 1)
