"""Permissions that producers need; a denied batch is not appended.

The outcomes are those of Apache Kafka 4.3.1 with the same rules as ACLs (`tests/access_matrix`).
"""

from uuid import UUID

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_transactions, produce
from penstock.security.acls.values import Operation, ResourceType
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.transactional import Transactional

TOPIC = ResourceType.TOPIC
ID = ResourceType.TRANSACTIONAL_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOBODY = UUID("00000000-0000-4000-8000-000000000001")
MANY = 300
"""Partitions of a request that is handled in slices."""


@pytest.fixture
def topic(asker: Asker, rules: RuleSet) -> str:
    name = fresh_name()
    asker.create(name)
    return name


def end_of(asker: Asker, rules: RuleSet, topic: str) -> int:
    """Where the log ends now, whatever the rules are."""
    rules.all_but()
    return asker.list_offsets(topic, {0: -1})[0].offset


def produce_codes(
    asker: Asker, request: produce.ProduceRequest, version: int = NAMED
) -> dict[str | UUID, ErrorCode]:
    answer = asker.ask(request, version, produce.ProduceResponse)
    return {
        found.name or found.topic_id or "": found.partition_responses[0].error_code
        for found in answer.responses
    }


def together(*requests: produce.ProduceRequest) -> produce.ProduceRequest:
    """One request for the topics of all."""
    return produce.ProduceRequest(
        transactional_id=requests[0].transactional_id,
        acks=requests[0].acks,
        timeout_ms=requests[0].timeout_ms,
        topic_data=tuple(topic for one in requests for topic in one.topic_data),
    )


# --- Produce ---


def test_a_producer_needs_write(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only((Operation.WRITE, TOPIC, topic))
    assert asker.produce(topic, batch_of(b"a")).error_code == ErrorCode.NONE
    assert rules.denials == []
    rules.all_but((Operation.WRITE, TOPIC, topic))
    assert asker.produce(topic, batch_of(b"b")).error_code == NO_TOPIC
    assert rules.denials == [(Operation.WRITE, TOPIC, topic)]
    assert end_of(asker, rules, topic) == 1


def test_topics_are_denied_one_by_one(asker: Asker, rules: RuleSet, topic: str) -> None:
    other = fresh_name()
    asker.create(other)
    rules.only((Operation.WRITE, TOPIC, topic))
    request = together(
        produce_request(other, {0: batch_of(b"a")}), produce_request(topic, {0: batch_of(b"a")})
    )
    assert produce_codes(asker, request) == {other: NO_TOPIC, topic: ErrorCode.NONE}
    assert end_of(asker, rules, other) == 0


def test_a_denied_producer_does_not_learn_which_topics_exist(asker: Asker, rules: RuleSet) -> None:
    missing = fresh_name()
    rules.only()
    assert asker.produce(missing, batch_of(b"a")).error_code == NO_TOPIC
    rules.only((Operation.WRITE, TOPIC, missing))
    assert asker.produce(missing, batch_of(b"a")).error_code == UNKNOWN


def test_an_unknown_id_comes_first(asker: Asker, rules: RuleSet) -> None:
    topic_id = asker.create(fresh_name())
    rules.only()
    request = together(
        produce_request(NOBODY, {0: batch_of(b"a")}), produce_request(topic_id, {0: batch_of(b"a")})
    )
    assert produce_codes(asker, request, 13) == {
        NOBODY: ErrorCode.UNKNOWN_TOPIC_ID,
        topic_id: NO_TOPIC,
    }


def test_a_denial_comes_before_the_acks(asker: Asker, rules: RuleSet, topic: str) -> None:
    request = produce_request(topic, {0: batch_of(b"a")}, acks=5)
    rules.only()
    assert produce_codes(asker, request) == {topic: NO_TOPIC}
    rules.all_but()
    assert produce_codes(asker, request) == {topic: ErrorCode.INVALID_REQUIRED_ACKS}


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_denied_producer_without_acks_is_disconnected(
    asker: Asker, rules: RuleSet, topic: str, is_transactional: bool
) -> None:
    rules.only()
    batch = batch_of(b"a")
    if is_transactional:
        batch = batch_of(b"a", producer_id=1, sequence=0, transactional=True)
    asker.send(produce_request(topic, {0: batch}, acks=0), NAMED, is_answered=False)
    assert asker.is_closed()
    with asker.another() as reader:
        assert end_of(reader, rules, topic) == 0


def test_many_partitions_are_denied(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    asker.create(name, MANY)
    rules.only()
    batch = batch_of(b"a")
    request = produce_request(name, dict.fromkeys(range(MANY), batch))
    answer = asker.ask(request, NAMED, produce.ProduceResponse)
    codes = [found.error_code for found in answer.responses[0].partition_responses]
    assert codes == [NO_TOPIC] * MANY
    assert rules.denials == [(Operation.WRITE, TOPIC, name)]


# --- Produce within a transaction ---


def transactional(producer: Transactional, topic: str, name: str | None) -> produce.ProduceRequest:
    batch = batch_of(
        b"a",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        sequence=0,
        transactional=True,
    )
    return produce_request(topic, {0: batch}, transactional_id=name)


@pytest.fixture
def producer(asker: Asker, rules: RuleSet) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


def test_a_transactional_batch_needs_write_on_its_id(
    asker: Asker, rules: RuleSet, topic: str, producer: Transactional
) -> None:
    request = transactional(producer, topic, producer.name)
    rules.only((Operation.WRITE, TOPIC, topic))
    assert produce_codes(asker, request) == {topic: NO_ID}
    assert rules.denials == [(Operation.WRITE, ID, producer.name)]
    rules.only((Operation.WRITE, TOPIC, topic), (Operation.WRITE, ID, producer.name))
    assert produce_codes(asker, request) == {topic: ErrorCode.NONE}
    assert end_of(asker, rules, topic) == 1


@pytest.mark.parametrize("version", [3, 8, NAMED])
def test_a_transactional_batch_without_an_id_is_denied(
    asker: Asker, rules: RuleSet, topic: str, producer: Transactional, version: int
) -> None:
    """CVE-2018-17196: the shortcut for one batch must not append it either."""
    rules.only((Operation.WRITE, TOPIC, topic))
    request = transactional(producer, topic, None)
    assert produce_codes(asker, request, version) == {topic: NO_ID}
    assert end_of(asker, rules, topic) == 0


def test_a_denied_id_denies_the_whole_request(
    asker: Asker, rules: RuleSet, topic: str, producer: Transactional
) -> None:
    """The error also comes before those of topics and of the acks."""
    other = fresh_name()
    asker.create(other)
    rules.only((Operation.WRITE, TOPIC, topic))
    request = together(
        transactional(producer, topic, producer.name),
        produce_request(topic, {1: batch_of(b"a")}),
        produce_request(other, {0: batch_of(b"a")}, acks=5),
    )
    answer = asker.ask(request, NAMED, produce.ProduceResponse)
    codes = [part.error_code for found in answer.responses for part in found.partition_responses]
    assert codes == [NO_ID] * 3
    assert end_of(asker, rules, topic) == 0


def test_a_denied_topic_does_not_join_the_transaction(
    asker: Asker, rules: RuleSet, topic: str, producer: Transactional
) -> None:
    other = fresh_name()
    asker.create(other)
    rules.only((Operation.WRITE, TOPIC, topic), (Operation.WRITE, ID, producer.name))
    request = together(
        transactional(producer, other, producer.name), transactional(producer, topic, None)
    )
    assert produce_codes(asker, request) == {other: NO_TOPIC, topic: ErrorCode.NONE}
    rules.all_but()
    asked = describe_transactions.DescribeTransactionsRequest(transactional_ids=(producer.name,))
    answer = asker.ask(asked, 0, describe_transactions.DescribeTransactionsResponse)
    assert [found.topic for found in answer.transaction_states[0].topics] == [topic]
    assert end_of(asker, rules, other) == 0


def test_a_transaction_for_denied_topics_only(
    asker: Asker, rules: RuleSet, topic: str, producer: Transactional
) -> None:
    rules.only((Operation.WRITE, ID, producer.name))
    request = transactional(producer, topic, producer.name)
    assert produce_codes(asker, request) == {topic: NO_TOPIC}
    assert end_of(asker, rules, topic) == 0
