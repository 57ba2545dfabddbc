"""DeleteTopics: by name or id; a deleted topic stays deleted, and its name may be used again."""

from uuid import UUID, uuid4

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import (
    BY_ID,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    produce_request,
    values_in,
)


def delete(asker: Asker, *topics: str | UUID | DeleteTopicState) -> list[DeletableTopicResult]:
    states = [
        topic
        if isinstance(topic, DeleteTopicState)
        else DeleteTopicState(
            name=None if isinstance(topic, UUID) else topic,
            topic_id=topic if isinstance(topic, UUID) else None,
        )
        for topic in topics
    ]
    request = DeleteTopicsRequest(topics=tuple(states), timeout_ms=10_000)
    return list(asker.ask(request, 6, DeleteTopicsResponse).responses)


def codes(results: list[DeletableTopicResult]) -> set[tuple[str | UUID | None, ErrorCode]]:
    return {(result.name or result.topic_id, result.error_code) for result in results}


def test_by_name_and_by_id(asker: Asker) -> None:
    first, second = fresh_name(), fresh_name()
    first_id, second_id = asker.create(first), asker.create(second)
    results = delete(asker, first, second_id)
    assert {(result.name, result.topic_id, result.error_code) for result in results} == {
        (first, first_id, ErrorCode.NONE),
        (second, second_id, ErrorCode.NONE),
    }
    for name in (first, second):
        asker.until_described(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_what_nobody_has(asker: Asker) -> None:
    name, unknown = fresh_name(), uuid4()
    assert codes(delete(asker, name, unknown)) == {
        (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    }


def test_the_others_of_a_request_are_deleted(asker: Asker) -> None:
    name, unknown = fresh_name(), fresh_name()
    asker.create(name)
    assert codes(delete(asker, unknown, name)) == {
        (name, ErrorCode.NONE),
        (unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }


def test_a_name_or_an_id_and_not_both(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    (both,) = delete(asker, DeleteTopicState(name=name, topic_id=topic_id))
    assert both.error_code == ErrorCode.INVALID_REQUEST
    (neither,) = delete(asker, DeleteTopicState(name=None, topic_id=None))
    assert neither.error_code == ErrorCode.INVALID_REQUEST
    assert asker.describe(name).error_code == ErrorCode.NONE


def test_a_topic_twice_in_a_request_is_kept(asker: Asker) -> None:
    for by_id in (False, True):
        name, other = fresh_name(), fresh_name()
        topic_id = asker.create(name)
        asker.create(other)
        twice = topic_id if by_id else name
        results = delete(asker, twice, other, twice)
        assert {result.error_code for result in results if result.name != other} == {
            ErrorCode.INVALID_REQUEST
        }
        assert (other, ErrorCode.NONE) in codes(results)
        assert asker.describe(name).error_code == ErrorCode.NONE


def test_a_topic_by_name_and_by_id_in_one_request_is_kept(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    results = delete(asker, name, topic_id)
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
    assert asker.describe(name).error_code == ErrorCode.NONE


def test_a_name_used_anew_is_another_topic(asker: Asker) -> None:
    name = fresh_name()
    old_id = asker.create(name)
    assert asker.produce(name, batch_of(b"old")).error_code == ErrorCode.NONE
    asker.delete(name)
    new_id = asker.create(name)
    assert new_id != old_id
    assert asker.fetch(name, 0).high_watermark == 0
    assert asker.produce(name, batch_of(b"new")).base_offset == 0
    assert values_in(asker.fetch(name, 0)) == [b"new"]


def test_the_old_id_means_nothing_any_more(asker: Asker) -> None:
    name = fresh_name()
    old_id = asker.create(name)
    asker.delete(name)
    asker.create(name)
    fetched = asker.ask(fetch_request({old_id: {0: 0}}), BY_ID, FetchResponse)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request = produce_request(old_id, {0: batch_of(b"late")})
    produced = asker.ask(request, 13, ProduceResponse)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert asker.fetch(name, 0).high_watermark == 0
