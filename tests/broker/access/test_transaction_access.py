"""Permissions that the APIs of transactions need; a denied request changes nothing.

Each outcome but the order of entries was seen on Apache Kafka 4.3.1 with the same rules as ACLs.
"""

import pytest

from penstock.core.types import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    add_partitions_to_txn,
    describe_transactions,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
)
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.groups import fetch_offsets, find
from tests.broker.handlers.transactional import Transactional

GROUP = ResourceType.GROUP
TOPIC = ResourceType.TOPIC
ID = ResourceType.TRANSACTIONAL_ID
CLUSTER = ResourceType.CLUSTER
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
MANY = 700
"""Partitions of a request that is handled in pieces."""


@pytest.fixture
def producer(asker: Asker, rules: RuleSet) -> Transactional:
    """A transactional producer, initialized while everything is allowed."""
    return Transactional(asker, fresh_name("bank")).init()


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, 2)
    return name


@pytest.fixture
def group(asker: Asker) -> str:
    name = fresh_name("group")
    find(asker, name)
    return name


def state_of(asker: Asker, *names: str) -> list[describe_transactions.TransactionState]:
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
    answer = asker.ask(request, 0, describe_transactions.DescribeTransactionsResponse)
    return list(answer.transaction_states)


def state_name(producer: Transactional) -> str:
    (found,) = state_of(producer.asker, producer.name)
    assert found.error_code == ErrorCode.NONE
    return found.transaction_state


# --- InitProducerId ---


def test_an_idempotent_producer_may_write_to_the_cluster_or_to_any_topic(
    asker: Asker, rules: RuleSet
) -> None:
    rules.only((Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME))
    assert asker.producer_id() >= 0
    rules.only((Operation.WRITE, TOPIC, "some-topic"))
    assert asker.producer_id() >= 0
    assert rules.denials == []
    rules.only((Operation.WRITE, ID, "x"), (Operation.READ, TOPIC, "some-topic"))
    request = init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1)
    answer = asker.ask(request, 5, init_producer_id.InitProducerIdResponse)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NO_CLUSTER, -1, -1)
    assert rules.denials == [(Operation.WRITE, TOPIC, "*")]


def test_a_transactional_producer_needs_its_id(producer: Transactional, rules: RuleSet) -> None:
    rules.all_but((Operation.WRITE, ID, producer.name))
    answer = producer.ask_init()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NO_ID, -1, -1)
    rules.only((Operation.WRITE, ID, producer.name))
    before = producer.epoch
    assert producer.init().epoch == before + 1  # the denied request did not fence it


def test_the_denial_wins_over_an_invalid_request(producer: Transactional, rules: RuleSet) -> None:
    rules.only()
    assert producer.ask_init(expected=(7, -1)).error_code == NO_ID
    producer.name = ""
    assert producer.ask_init().error_code == NO_ID
    rules.all_but()
    assert producer.ask_init().error_code == ErrorCode.INVALID_REQUEST


# --- AddPartitionsToTxn ---


def test_a_client_needs_its_id_and_each_topic(
    producer: Transactional, rules: RuleSet, topic: str
) -> None:
    rules.only((Operation.WRITE, ID, producer.name), (Operation.WRITE, TOPIC, topic))
    assert producer.ask_add(topic, 0) == [ErrorCode.NONE]
    assert rules.denials == []


def add_codes(
    producer: Transactional, version: int, *topics: tuple[str, int]
) -> dict[str, ErrorCode]:
    """Add the first `count` partitions of each topic; all of them must have the same code."""
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=tuple(
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=tuple(range(count)))
            for name, count in topics
        ),
    )
    answer = producer.asker.ask(request, version, add_partitions_to_txn.AddPartitionsToTxnResponse)
    codes = {}
    for found in answer.results_by_topic_v3_and_below:
        (codes[found.name],) = {one.partition_error_code for one in found.results_by_partition}
    return codes


@pytest.mark.parametrize("count", [2, 5_000])
def test_a_denied_topic_keeps_the_others_from_being_added(
    producer: Transactional, rules: RuleSet, topic: str, count: int
) -> None:
    denied, unknown = fresh_name(), fresh_name()
    rules.all_but((Operation.WRITE, TOPIC, denied), (Operation.DESCRIBE, TOPIC, topic))
    topics = ((topic, 2), (denied, count), (unknown, 1), (OFFSETS_TOPIC, 1))
    assert add_codes(producer, 3, *topics) == {
        topic: NOT_ATTEMPTED,
        denied: NO_TOPIC,
        unknown: UNKNOWN,
        OFFSETS_TOPIC: NO_TOPIC,
    }
    assert rules.denials == [(Operation.WRITE, TOPIC, denied)]
    assert state_name(producer) == "Empty"


@pytest.mark.parametrize("count", [2, 5_000])
def test_the_denial_of_the_id_wins_over_those_of_topics(
    producer: Transactional, rules: RuleSet, topic: str, count: int
) -> None:
    rules.only((Operation.WRITE, TOPIC, topic))
    other = fresh_name()
    codes = add_codes(producer, 3, (topic, count), (other, 1))
    assert codes == {topic: NO_ID, other: NO_ID}
    assert rules.denials == [(Operation.WRITE, ID, producer.name)]
    assert add_codes(producer, 3) == {}
    rules.all_but()
    assert state_name(producer) == "Empty"


def test_a_batch_of_transactions_is_for_brokers(
    producer: Transactional, rules: RuleSet, topic: str
) -> None:
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=(producer.batch_entry(topic, 0),)
    )
    response_class = add_partitions_to_txn.AddPartitionsToTxnResponse
    rules.all_but((Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    answer = producer.asker.ask(request, 5, response_class)
    assert (answer.error_code, answer.results_by_transaction) == (NO_CLUSTER, ())
    assert state_name(producer) == "Empty"
    rules.only((Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    (result,) = producer.asker.ask(request, 5, response_class).results_by_transaction
    (found,) = result.topic_results[0].results_by_partition
    assert found.partition_error_code == ErrorCode.NONE


# --- AddOffsetsToTxn, EndTxn ---


def test_offsets_are_added_with_the_id_and_the_group(
    producer: Transactional, rules: RuleSet, group: str
) -> None:
    use_id, read_group = (Operation.WRITE, ID, producer.name), (Operation.READ, GROUP, group)
    rules.only()
    assert producer.ask_add_offsets(group) == NO_ID
    rules.only(read_group)
    assert producer.ask_add_offsets(group) == NO_ID
    rules.only(use_id)
    assert producer.ask_add_offsets(group) == NO_GROUP
    rules.all_but()
    assert state_name(producer) == "Empty"
    rules.only(use_id, read_group)
    assert producer.ask_add_offsets(group) == ErrorCode.NONE


def test_a_transaction_is_ended_by_clients_that_may_use_its_id(
    producer: Transactional, rules: RuleSet, topic: str
) -> None:
    producer.add(topic, 0)
    rules.all_but((Operation.WRITE, ID, producer.name))
    answer = producer.ask_end(commits=True)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NO_ID, -1, -1)
    assert state_name(producer) == "Ongoing"
    rules.only((Operation.WRITE, ID, producer.name))
    producer.end(commits=True)


# --- TxnOffsetCommit ---


def commit(
    producer: Transactional, group: str, topics: dict[str, int], version: int = 5
) -> dict[str, set[ErrorCode]]:
    """Commit offset 3 for some partitions of each topic."""
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=3
                    )
                    for number in range(count)
                ),
            )
            for name, count in topics.items()
        ),
    )
    answer = producer.asker.ask(request, version, txn_offset_commit.TxnOffsetCommitResponse)
    return {found.name: {one.error_code for one in found.partitions} for found in answer.topics}


@pytest.mark.parametrize("count", [2, MANY])
def test_the_denials_of_a_commit_have_an_order(
    producer: Transactional, rules: RuleSet, group: str, topic: str, count: int
) -> None:
    use_id: Rule = (Operation.WRITE, ID, producer.name)
    read_group: Rule = (Operation.READ, GROUP, group)
    read_topic: Rule = (Operation.READ, TOPIC, topic)
    for allowed, code in (
        ([read_group, read_topic], NO_ID),
        ([use_id, read_topic], NO_GROUP),
        ([read_topic], NO_ID),
        ([use_id, read_group], NO_TOPIC),
    ):
        rules.only(*allowed)
        assert commit(producer, group, {topic: count}) == {topic: {code}}
    rules.all_but()
    assert state_name(producer) == "Empty"
    assert fetch_offsets(producer.asker, group, None).topics == ()


def test_offsets_of_topics_that_may_be_read_are_committed(
    producer: Transactional, rules: RuleSet, group: str, topic: str
) -> None:
    denied, unknown = fresh_name(), fresh_name()
    producer.asker.create(denied, 2)
    rules.only(
        (Operation.WRITE, ID, producer.name),
        (Operation.READ, GROUP, group),
        (Operation.READ, TOPIC, topic),
        (Operation.READ, TOPIC, unknown),
    )
    assert commit(producer, group, {denied: 2, unknown: 1, topic: 2}) == {
        denied: {NO_TOPIC},
        unknown: {UNKNOWN},
        topic: {ErrorCode.NONE},
    }
    assert rules.denials == [(Operation.READ, TOPIC, denied)]
    producer.end(commits=True)


# --- DescribeTransactions, ListTransactions ---


def test_partitions_of_topics_that_may_not_be_described_are_hidden(
    producer: Transactional, rules: RuleSet, topic: str
) -> None:
    hidden, other = fresh_name(), fresh_name("bank")
    producer.asker.create(hidden)
    producer.add(topic, 0, 1)
    producer.add(hidden, 0)
    rules.only((Operation.DESCRIBE, ID, producer.name), (Operation.DESCRIBE, TOPIC, topic))
    denied, found, nameless = state_of(producer.asker, other, producer.name, "")
    assert [(one.topic, one.partitions) for one in found.topics] == [(topic, (0, 1))]
    assert (found.error_code, found.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (denied.transactional_id, denied.error_code, denied.transaction_state) == (
        other,
        NO_ID,
        "",
    )
    assert nameless.error_code == NO_ID
    assert rules.denials == [(Operation.DESCRIBE, ID, name) for name in (other, "")]
    rules.all_but()
    producer.end(commits=False)


def test_ids_that_may_not_be_described_are_not_listed(
    producer: Transactional, rules: RuleSet
) -> None:
    other = Transactional(producer.asker, fresh_name("bank")).init()

    def listed() -> set[str]:
        request = list_transactions.ListTransactionsRequest()
        answer = producer.asker.ask(request, 2, list_transactions.ListTransactionsResponse)
        assert answer.error_code == ErrorCode.NONE
        return {one.transactional_id for one in answer.transaction_states}

    assert listed() >= {producer.name, other.name}
    rules.only((Operation.DESCRIBE, ID, other.name))
    assert listed() == {other.name}
    rules.only()
    assert listed() == set()
    assert rules.denials == []
