"""DescribeTransactions: the state of a transactional id for administrators."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional


def describe(asker: Asker, *names: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=names)
    answer = asker.ask(request, 0, DescribeTransactionsResponse)
    return list(answer.transaction_states)


def test_an_open_transaction_is_described(asker: Asker) -> None:
    topic = fresh_name()
    asker.create(topic, 3)
    transactional = Transactional(asker, fresh_name("bank")).init()
    (empty,) = describe(asker, transactional.name)
    assert (empty.transaction_state, empty.topics) == ("Empty", ())
    transactional.add(topic, 0, 2)
    (found,) = describe(asker, transactional.name)
    assert found.error_code == ErrorCode.NONE
    assert found.transaction_state == "Ongoing"
    assert found.transaction_timeout_ms == 60_000
    assert found.transaction_start_time_ms > 0
    assert (found.producer_id, found.producer_epoch) == transactional.producer
    (described,) = found.topics
    assert (described.topic, sorted(described.partitions)) == (topic, [0, 2])


def test_names_that_cannot_be_described(asker: Asker) -> None:
    nobody = Transactional(asker, fresh_name("nobody"))
    found = describe(asker, nobody.name, "")
    assert [one.error_code for one in found] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [one.transactional_id for one in found] == [nobody.name, ""]
    assert [(one.transaction_state, one.producer_id) for one in found] == [("", 0)] * 2


def test_no_names_no_answers(asker: Asker) -> None:
    assert describe(asker) == []


@pytest.mark.parametrize("count", [60])
def test_many_names_over_many_coordinators(asker: Asker, count: int) -> None:
    names = [Transactional(asker, fresh_name("many")).init().name for _ in range(count)]
    assert [one.transactional_id for one in describe(asker, *names)] == names
