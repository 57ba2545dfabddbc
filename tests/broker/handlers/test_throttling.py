"""A client above its quota: answered at once, with a throttle time, and not read from meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import (
    NAMED,
    TIMEOUT_MS,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    produce_request,
)
from tests.broker.handlers.quotas import set_quotas

LIMIT = 50_000
ALLOWED_AT_ONCE = 10 * LIMIT
"""Ten windows of a second: what may be used without waiting."""
ABOVE = 10_000
"""Bytes above it that cost 200 ms."""
WAIT_MS = 200

BATCH_BYTES = 64_000
"""Seven may be fetched at once; the eighth costs about 250 ms."""
SEVEN = 450_000

Client = Callable[[], Asker]


@pytest.fixture
def client_id(asker: Asker) -> str:
    return fresh_name("kafka-client" if asker.is_kafka else "client")


@pytest.fixture
def client(asker: Asker, client_id: str) -> Iterator[Client]:
    """Makes connections of one client that has quotas; `asker` itself has none."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            Asker(asker.port, is_kafka=asker.is_kafka, client_id=client_id)
        )


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name)
    return name


def seconds_to_answer(connection: Asker) -> float:
    begun = time.monotonic()
    connection.receive(ApiVersionsResponse)
    return time.monotonic() - begun


# --- Produce ---


def test_a_producer_is_answered_at_once_and_read_from_later(
    asker: Asker, client: Client, client_id: str, topic: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, producer_byte_rate=LIMIT)
    producer = client()
    records = batch_of(bytes(ALLOWED_AT_ONCE + ABOVE))
    begun = time.monotonic()
    producer.send_together((produce_request(topic, {0: records}), NAMED), (ApiVersionsRequest(), 0))
    answer = producer.receive(ProduceResponse)
    answered_after = time.monotonic() - begun
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert answered_after < WAIT_MS / 1000
    assert WAIT_MS <= answer.throttle_time_ms <= WAIT_MS + 20
    seconds_to_answer(producer)
    assert WAIT_MS / 1000 <= time.monotonic() - begun < 2.0


def test_a_producer_that_wants_no_answer_waits_too(
    asker: Asker, client: Client, client_id: str, topic: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, producer_byte_rate=LIMIT)
    producer = client()
    records = batch_of(bytes(ALLOWED_AT_ONCE + ABOVE))
    begun = time.monotonic()
    producer.send(produce_request(topic, {0: records}, acks=0), NAMED, is_answered=False)
    producer.send(ApiVersionsRequest(), 0)
    seconds_to_answer(producer)
    assert time.monotonic() - begun >= WAIT_MS / 1000


def test_what_one_connection_used_counts_for_all_of_its_client(
    asker: Asker, client: Client, client_id: str, topic: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, producer_byte_rate=LIMIT)
    first, second = client(), client()
    records = batch_of(bytes(ALLOWED_AT_ONCE - ABOVE))
    assert (
        first.ask(produce_request(topic, {0: records}), NAMED, ProduceResponse).throttle_time_ms
        == 0
    )
    records = batch_of(bytes(3 * ABOVE))
    answer = second.ask(produce_request(topic, {0: records}), NAMED, ProduceResponse)
    assert answer.throttle_time_ms > 0


def test_others_are_not_held_back(asker: Asker, client: Client, client_id: str, topic: str) -> None:
    set_quotas(asker, {"client-id": client_id}, producer_byte_rate=LIMIT)
    producer = client()
    records = batch_of(bytes(2 * ALLOWED_AT_ONCE))
    answer = producer.ask(produce_request(topic, {0: records}), NAMED, ProduceResponse)
    assert answer.throttle_time_ms > 1_000
    begun = time.monotonic()
    assert asker.produce(topic, batch_of(b"mine")).error_code == ErrorCode.NONE
    assert time.monotonic() - begun < 1.0


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_every_version_says_how_long_to_wait(
    asker: Asker, client: Client, client_id: str, topic: str, version: int
) -> None:
    set_quotas(asker, {"client-id": client_id}, producer_byte_rate=LIMIT)
    request = produce_request(topic, {0: batch_of(bytes(ALLOWED_AT_ONCE + ABOVE))})
    assert client().ask(request, version, ProduceResponse).throttle_time_ms >= WAIT_MS


# --- Fetch ---


@pytest.fixture
def full_topic(asker: Asker, topic: str) -> str:
    """More than may be used at once, in small batches."""
    for _ in range(12):
        asker.produce(topic, batch_of(bytes(BATCH_BYTES)))
    return topic


def test_a_consumer_above_its_quota_is_answered_without_records(
    asker: Asker, client: Client, client_id: str, full_topic: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, consumer_byte_rate=LIMIT)
    consumer = client()
    first = consumer.ask(fetch_request({full_topic: {0: 0}}, max_bytes=SEVEN), NAMED, FetchResponse)
    assert first.throttle_time_ms == 0
    found_bytes = len(first.responses[0].partitions[0].records or b"")
    assert 7 * BATCH_BYTES < found_bytes <= SEVEN
    request = fetch_request({full_topic: {0: 7}}, max_bytes=1)
    second = consumer.ask(request, NAMED, FetchResponse)
    assert second.error_code == ErrorCode.NONE
    assert second.responses == ()
    assert second.throttle_time_ms > 100
    consumer.send(ApiVersionsRequest(), 0)
    assert seconds_to_answer(consumer) >= second.throttle_time_ms / 1000 - 0.05


def test_a_session_that_did_not_begin_begins_again(
    asker: Asker, client: Client, client_id: str, full_topic: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, consumer_byte_rate=LIMIT)
    client().ask(fetch_request({full_topic: {0: 0}}, max_bytes=SEVEN), NAMED, FetchResponse)
    request = fetch_request({full_topic: {0: 7}}, session_epoch=0)
    answer = client().ask(request, NAMED, FetchResponse)
    assert answer.throttle_time_ms > 0
    assert (answer.session_id, answer.responses) == (0, ())


def test_a_session_goes_on_after_an_answer_without_records(
    asker: Asker, client: Client, client_id: str, full_topic: str
) -> None:
    request = fetch_request({full_topic: {0: 0}}, session_epoch=0, max_bytes=1)
    session_id = client().ask(request, NAMED, FetchResponse).session_id
    assert session_id > 0
    set_quotas(asker, {"client-id": client_id}, consumer_byte_rate=LIMIT)
    client().ask(fetch_request({full_topic: {0: 0}}, max_bytes=SEVEN), NAMED, FetchResponse)
    request = fetch_request({full_topic: {0: 7}}, session_id=session_id, session_epoch=1)
    answer = client().ask(request, NAMED, FetchResponse)
    assert answer.throttle_time_ms > 0
    assert (answer.session_id, answer.responses) == (session_id, ())
    set_quotas(asker, {"client-id": client_id}, consumer_byte_rate=None)
    request = fetch_request({}, session_id=session_id, session_epoch=2)
    answer = client().ask(request, NAMED, FetchResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.responses[0].partitions[0].records


def test_a_fetch_brings_no_more_than_can_ever_pass(
    asker: Asker, client: Client, client_id: str, full_topic: str
) -> None:
    """Asked for all of it, and to wait until it is there: what is allowed at once is enough."""
    set_quotas(asker, {"client-id": client_id}, consumer_byte_rate=LIMIT)
    request = fetch_request({full_topic: {0: 0}}, min_bytes=700_000, wait_ms=TIMEOUT_MS)
    begun = time.monotonic()
    answer = client().ask(request, NAMED, FetchResponse)
    assert time.monotonic() - begun < 1.0
    # Kafka cuts the last batch and then finds that the frame around it is too much.
    assert answer.throttle_time_ms <= 1
    assert sum(len(p.records or b"") for t in answer.responses for p in t.partitions) <= 500_000


@pytest.mark.parametrize("quota", ["producer_byte_rate", "consumer_byte_rate"])
def test_a_fetch_of_one_byte_waits_for_it(
    asker: Asker, client: Client, client_id: str, topic: str, quota: str
) -> None:
    set_quotas(asker, {"client-id": client_id}, **{quota: LIMIT})
    request = fetch_request({topic: {0: 0}}, min_bytes=1, max_bytes=1, wait_ms=500)
    begun = time.monotonic()
    client().ask(request, NAMED, FetchResponse)
    assert time.monotonic() - begun > 0.4


# --- Time of requests ---


def test_time_above_its_quota_is_waited_for(asker: Asker, client: Client, client_id: str) -> None:
    set_quotas(asker, {"client-id": client_id}, request_percentage=1e-6)
    connection = client()
    answer = connection.ask(MetadataRequest(topics=()), 9, MetadataResponse)
    assert answer.brokers
    assert answer.throttle_time_ms == 1_000
    connection.send(ApiVersionsRequest(), 0)
    assert connection.is_silent(0.1)


# --- Changes of topics ---


def created(connection: Asker, name: str, partitions: int, version: int) -> CreateTopicsResponse:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
    return connection.ask(request, version, CreateTopicsResponse)


@pytest.fixture
def spent(asker: Asker, client: Client, client_id: str) -> str:
    """A topic of the client, whose making has used up a second more than its quota."""
    set_quotas(asker, {"client-id": client_id}, controller_mutation_rate=1.0)
    name = fresh_name()
    answer = created(client(), name, 13, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms == 0
    asker._wait_until_led(name, 13)
    return name


def test_topics_above_the_quota_are_not_created(asker: Asker, client: Client, spent: str) -> None:
    name = fresh_name()
    answer = created(client(), name, 1, 6)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # Kafka leaves the text to the client.
    told = None if asker.is_kafka else "The throttling quota has been exceeded."
    assert answer.topics[0].error_message == told
    assert 500 < answer.throttle_time_ms <= 2_000
    assert asker.describe(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_older_client_gets_its_topic_and_waits(asker: Asker, client: Client, spent: str) -> None:
    name = fresh_name()
    connection = client()
    answer = created(connection, name, 2, 5)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > 1_000
    asker.until_described(name, ErrorCode.NONE)
    connection.send(ApiVersionsRequest(), 0)
    assert connection.is_silent(0.1)


def test_what_is_wrong_is_said_before_the_quota(client: Client, spent: str) -> None:
    answer = created(client(), spent, 1, 7)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert answer.throttle_time_ms == 0


def test_partitions_above_the_quota_are_not_added(asker: Asker, client: Client, spent: str) -> None:
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=spent, count=14, assignments=None),),
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    answer = client().ask(request, 3, CreatePartitionsResponse)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 0
    assert len(asker.describe(spent).partitions) == 13
    assert not client().ask(request, 2, CreatePartitionsResponse).results[0].error_code
    asker.until(lambda: len(asker.describe(spent).partitions) == 14)


def test_topics_above_the_quota_are_not_deleted(asker: Asker, client: Client, spent: str) -> None:
    request = DeleteTopicsRequest(topic_names=(spent,), timeout_ms=TIMEOUT_MS)
    answer = client().ask(request, 5, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 0
    assert asker.describe(spent).error_code == ErrorCode.NONE
    answer = client().ask(request, 4, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > 1_000
    asker.until_described(spent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_topic_that_metadata_would_create_waits_too(
    asker: Asker, client: Client, spent: str
) -> None:
    name = fresh_name()
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True
    )
    answer = client().ask(request, 9, MetadataResponse)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not asker.is_kafka:
        # Kafka's broker asks the controller later, and does not know of the wait yet.
        assert answer.throttle_time_ms > 0
    assert asker.describe(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- Connections ---


def test_connections_too_soon_are_held_and_closed(asker: Asker) -> None:
    address = "127.0.0.77" if asker.is_kafka else "127.0.0.78"
    set_quotas(asker, {"ip": address}, connection_creation_rate=5.0)

    def connected() -> Asker:
        return stack.enter_context(Asker(asker.port, is_kafka=asker.is_kafka, source=address))

    with ExitStack() as stack:
        begun = time.monotonic()
        welcome = [connected() for _ in range(50)]
        late = connected()
        late.send(ApiVersionsRequest(), 0)
        assert late.is_closed()
        # (51 / 10 - 5) / 5 * 10 s after the first, and never before.
        assert 0.1 < time.monotonic() - begun < 3.0
        for connection in (welcome[0], welcome[-1], asker):
            connection.send(ApiVersionsRequest(), 0)
            assert seconds_to_answer(connection) < 1.0
    set_quotas(asker, {"ip": address}, connection_creation_rate=None)
