"""AddPartitionsToTxn: by clients one transaction at a time, by brokers in batches."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, 3)
    return name


@pytest.fixture
def transactional(asker: Asker) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


def ask_batch(
    asker: Asker, *entries: AddPartitionsToTxnTransaction, version: int = 5
) -> dict[str, dict[tuple[str, int], ErrorCode]]:
    answer = asker.ask(
        AddPartitionsToTxnRequest(transactions=entries), version, AddPartitionsToTxnResponse
    )
    assert answer.error_code == ErrorCode.NONE
    return {
        result.transactional_id: {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_partitions_are_added(transactional: Transactional, topic: str, version: int) -> None:
    assert transactional.ask_add(topic, 0, 2, version=version) == [ErrorCode.NONE] * 2
    assert transactional.ask_add(topic, 0, version=version) == [ErrorCode.NONE]


@pytest.mark.parametrize("topics", ["none", "one without partitions"])
def test_nothing_may_be_added(transactional: Transactional, topic: str, topics: str) -> None:
    producer_id, epoch = transactional.producer
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional.name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=()
        if topics == "none"
        else (AddPartitionsToTxnTopic(name=topic, partitions=()),),
    )
    answer = transactional.asker.ask(request, 3, AddPartitionsToTxnResponse)
    codes = [
        one
        for result in answer.results_by_topic_v3_and_below
        for one in result.results_by_partition
    ]
    assert codes == []
    described = transactional.asker.ask(
        DescribeTransactionsRequest(transactional_ids=(transactional.name,)),
        0,
        DescribeTransactionsResponse,
    )
    assert described.transaction_states[0].transaction_state == "Ongoing"
    assert transactional.ask_add(topic, 0) == [ErrorCode.NONE]


def test_one_missing_partition_keeps_all_from_being_added(
    transactional: Transactional, topic: str
) -> None:
    codes = transactional.ask_add(topic, 0, 9)
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    missing = transactional.ask_add(fresh_name("missing"), 0)
    assert missing == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    entry = transactional.batch_entry(topic, 0, verify_only=True)
    found = ask_batch(transactional.asker, entry)
    assert found[transactional.name] == {(topic, 0): ErrorCode.TRANSACTION_ABORTABLE}


def test_clients_may_not_write_to_internal_topics(transactional: Transactional) -> None:
    codes = transactional.ask_add("__transaction_state", 0)
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_strangers_are_refused(transactional: Transactional, topic: str) -> None:
    producer_id, epoch = transactional.producer
    other = (producer_id + 1_000_000, epoch)
    assert transactional.ask_add(topic, 0, producer=other) == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ]
    later = (producer_id, epoch + 1)
    assert transactional.ask_add(topic, 0, producer=later) == [ErrorCode.PRODUCER_FENCED]
    old_client = transactional.ask_add(topic, 0, producer=later, version=1)
    assert old_client == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_brokers_ask_for_several_transactions_at_once(
    asker: Asker, transactional: Transactional, topic: str
) -> None:
    second = Transactional(asker, fresh_name("bank")).init()
    nobody = Transactional(asker, fresh_name("nobody"))
    transactional.add(topic, 0)
    found = ask_batch(
        asker,
        transactional.batch_entry(topic, 0, 1, verify_only=True),
        second.batch_entry(topic, 2),
        nobody.batch_entry(topic, 0, producer=(1, 0)),
        version=4,
    )
    assert found == {
        transactional.name: {
            (topic, 0): ErrorCode.NONE,
            (topic, 1): ErrorCode.TRANSACTION_ABORTABLE,
        },
        second.name: {(topic, 2): ErrorCode.NONE},
        nobody.name: {(topic, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    }


def test_an_empty_batch_is_answered(penstock: Asker) -> None:
    """Kafka never answers it."""
    assert ask_batch(penstock) == {}


def test_very_many_transactions_are_answered_in_order(
    asker: Asker, transactional: Transactional, topic: str
) -> None:
    """They are handled in slices."""
    strangers = [Transactional(asker, fresh_name("nobody")) for _ in range(60)]
    entries = [one.batch_entry(topic, 0, producer=(1, 0)) for one in strangers]
    found = ask_batch(asker, *entries, transactional.batch_entry(topic, 1), version=4)
    refused = {(topic, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert found == {
        **{one.name: refused for one in strangers},
        transactional.name: {(topic, 1): ErrorCode.NONE},
    }
    assert list(found)[-1] == transactional.name


def test_a_wide_request_answers_a_repeated_partition_once(penstock: Asker) -> None:
    """Guards the event loop: a coordinator looked at each of 60,000 mentions in one turn."""
    name = fresh_name()
    penstock.create(name, 2)
    transactional = Transactional(penstock, fresh_name("bank")).init()
    producer_id, epoch = transactional.producer
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional.name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=name, partitions=(0, 1) * 3_000),) * 2,
    )
    answer = penstock.ask(request, 3, AddPartitionsToTxnResponse)
    (topic,) = answer.results_by_topic_v3_and_below
    found = {one.partition_index: one.partition_error_code for one in topic.results_by_partition}
    assert found == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert len(topic.results_by_partition) == 2
