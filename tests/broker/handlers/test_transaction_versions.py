"""Every version of every transaction API does its part in the life of a transaction.

Transactions cannot be tested with single requests as in `test_versions`: the producer that ends one
must have begun it. More of each API is in the test of its handler.
"""

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.transactional import Transactional, find_coordinator, retried

NONE = ErrorCode.NONE


def versions_of(key: ApiKey) -> list[int]:
    versions = HANDLERS[key].versions
    return list(range(versions.lowest, versions.highest + 1))


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, 2)
    return name


@pytest.fixture
def transactional(asker: Asker) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


@pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id(transactional: Transactional, version: int) -> None:
    answer = transactional.ask_init(version)
    assert (answer.error_code, answer.producer_id) == (NONE, transactional.producer_id)
    assert answer.producer_epoch == 1
    refused = transactional.ask_init(version, timeout_ms=-1)
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", versions_of(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_add_partitions_to_txn(transactional: Transactional, topic: str, version: int) -> None:
    if version < 4:
        assert transactional.ask_add(topic, 0, 1, version=version) == [NONE, NONE]
    else:
        entry = transactional.batch_entry(topic, 0, 1)
        request = AddPartitionsToTxnRequest(transactions=(entry,))
        answer = transactional.asker.ask(request, version, AddPartitionsToTxnResponse)
        assert answer.error_code == NONE
        (result,) = answer.results_by_transaction
        assert result.transactional_id == transactional.name
        codes = [one.partition_error_code for one in result.topic_results[0].results_by_partition]
        assert codes == [NONE, NONE]
    transactional.end(commits=True)


@pytest.mark.parametrize("version", versions_of(ApiKey.ADD_OFFSETS_TO_TXN))
def test_add_offsets_to_txn(transactional: Transactional, version: int) -> None:
    find_coordinator(transactional.asker, "g", 0)
    assert transactional.ask_add_offsets("g", version) == NONE
    transactional.end(commits=False)


@pytest.mark.parametrize("version", versions_of(ApiKey.END_TXN))
@pytest.mark.parametrize("commits", [True, False])
def test_end_txn(transactional: Transactional, topic: str, version: int, commits: bool) -> None:
    transactional.add(topic, 0)
    answer = retried(
        lambda: transactional.ask_end(commits=commits, version=version),
        lambda answer: answer.error_code,
    )
    assert answer.error_code == NONE
    if version < 5:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    else:
        expected = (transactional.producer_id, transactional.epoch + 1)
        assert (answer.producer_id, answer.producer_epoch) == expected


def test_every_transaction_api_has_a_test_here_or_of_its_own() -> None:
    """TxnOffsetCommit, DescribeTransactions and ListTransactions name their versions there."""
    assert versions_of(ApiKey.TXN_OFFSET_COMMIT) == [0, 1, 2, 3, 4, 5]
    assert versions_of(ApiKey.DESCRIBE_TRANSACTIONS) == [0]
    assert versions_of(ApiKey.LIST_TRANSACTIONS) == [0, 1, 2]
