"""Requests with very many array elements are decoded by a thread, and answered as any other.

Decoding costs microseconds for each element: 190,000 of them stopped the event loop for 0.7 s.
"""

from collections.abc import Iterator

import pytest

from penstock.core.limits import ELEMENTS_ON_LOOP_MAX, ELEMENTS_PER_REQUEST_MAX
from penstock.protocol import codec
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, produce_request

WIDE = ELEMENTS_ON_LOOP_MAX + 1_000
VERSION = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def asker(broker: Broker) -> Iterator[Asker]:
    with Asker(broker.port) as connection:
        yield connection


def naming(count: int) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(name=f"t{number}") for number in range(count))
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def test_the_answers_stay_in_order(
    asker: Asker, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards `Dispatcher.dispatch`: the event loop decodes no more than its bound."""
    decode, bounds = codec.decode_request, list[int]()

    def note(*given: object) -> object:
        bounds.append(given[3] if len(given) > 3 else ELEMENTS_PER_REQUEST_MAX)  # type: ignore[arg-type]
        return decode(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "decode_request", note)
    asker.send_together(
        (ApiVersionsRequest(), 0), (naming(WIDE), VERSION), (ApiVersionsRequest(), 0)
    )
    asker.receive(ApiVersionsResponse)
    assert len(asker.receive(MetadataResponse).topics) == WIDE
    asker.receive(ApiVersionsResponse)
    on_loop = ELEMENTS_ON_LOOP_MAX
    assert bounds == [on_loop, on_loop, ELEMENTS_PER_REQUEST_MAX, on_loop]


def test_a_wide_produce_is_appended_before_what_was_sent_after_it(broker: Broker) -> None:
    """Guards `ForwardingWaiter.follow`: a produce that goes on in slices still holds.

    Its last batch was appended after that of the next request.
    """
    with Asker(broker.port) as asker:
        asker.create("ordered")
        # Unknown partitions cost time as good ones do; the only good one is the last.
        batches = dict.fromkeys(range(1, WIDE), b"")
        wide = produce_request("ordered", {**batches, 0: batch_of(b"first")})
        narrow = produce_request("ordered", {0: batch_of(b"second")})
        asker.send_together((wide, NAMED), (narrow, NAMED))
        answers = [asker.receive(ProduceResponse) for _ in range(2)]
        offsets = [answer.responses[0].partition_responses[-1].base_offset for answer in answers]
        assert offsets == [0, 1]


def test_a_wide_fetch_that_waits_is_answered_when_the_client_sends_no_more(broker: Broker) -> None:
    with Asker(broker.port) as asker:
        asker.create("few")
        request = fetch_request({"few": {0: 0}}, wait_ms=20_000)
        wide = fetch_request({"few": dict.fromkeys(range(WIDE), 0)}, wait_ms=20_000)
        asker.send(wide, NAMED)
        answer = asker.receive(FetchResponse)
        assert len(answer.responses[0].partitions) == WIDE
        asker.send(request, NAMED)
        asker.finish_sending()
        asker.receive(FetchResponse)
        assert asker.is_closed()


def test_bytes_that_are_not_a_request_close_the_connection_and_count(broker: Broker) -> None:
    before = broker.metrics()['protocol_errors_total{reason="malformed"}']
    with Asker(broker.port) as asker:
        asker.send(naming(ELEMENTS_PER_REQUEST_MAX + 1), VERSION)
        assert asker.is_closed()
    assert broker.metrics()['protocol_errors_total{reason="malformed"}'] == before + 1
