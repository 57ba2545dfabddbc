"""The last line of defence: a defect of ours costs one connection, and is counted.

No bad input is known that gets this far, so the defect is put in here: an answer that cannot be
written, of a plain handler and of one that runs as a task. Beside it, inputs that must be rejected
although each half is right.
"""

from collections.abc import Callable

import pytest

from penstock.protocol import connection
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.bad_input.batches import VICTIM, good
from tests.bad_input.cases_wire import METADATA_V12_NO_TOPICS
from tests.bad_input.inside import InsideBroker
from tests.bad_input.ward import create_topics
from tests.bad_input.wire import Peer, request

METADATA = request(ApiKey.METADATA, 12, METADATA_V12_NO_TOPICS)
API_VERSIONS = request(ApiKey.API_VERSIONS, 0, b"")
DESCRIBE_CLUSTER = request(ApiKey.DESCRIBE_CLUSTER, 0, b"\x00\x00")


def refusing(api_key: int) -> Callable[[connection.Request, Message], list[Buffer]]:
    """The encoder, but for one API, whose answers it cannot write."""

    def encode(request: connection.Request, message: Message) -> list[Buffer]:
        if request.api_key == api_key:
            raise ValueError("cannot be written")
        return connection.encode_response_frame(request, message)

    return encode


@pytest.mark.parametrize(
    ("api_key", "data"),
    [(ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER), (ApiKey.METADATA, METADATA)],
    ids=["plain", "task"],
)
@pytest.mark.uncompiled
def test_an_answer_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    api_key: int,
    data: bytes,
) -> None:
    monkeypatch.setattr(
        "penstock.broker.connections.session.encode_response_frame", refusing(api_key)
    )
    with InsideBroker() as broker, Peer(broker.port) as other:
        with Peer(broker.port) as peer:
            peer.send(data)
            assert peer.answer() is None
        assert broker.settles("handler_failures_total", 1)
        other.send(API_VERSIONS)
        assert other.answer() is not None
        assert broker.settles("connections", 1)
    assert "cannot be written" in caplog.text


def test_a_partition_that_is_named_twice() -> None:
    """The answer would leave with the commit of the first batch, before the second is on disk."""
    data = PartitionProduceData(index=0, records=good(1))
    topic = TopicProduceData(name=VICTIM, topic_id=None, partition_data=(data, data))
    message = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic, topic))
    with InsideBroker() as broker:
        create_topics(broker.port)
        with Peer(broker.port) as peer:
            found = peer.call(message, 9)
            assert isinstance(found, ProduceResponse)
            codes = [
                partition.error_code
                for answered in found.responses
                for partition in answered.partition_responses
            ]
            assert codes == [ErrorCode.NONE, *[ErrorCode.INVALID_REQUEST] * 3]
