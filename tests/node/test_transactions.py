"""Transactions through a whole broker: restarts, timeouts, deleted topics, epochs that run out."""

import time
from collections.abc import Callable
from pathlib import Path

from penstock.core.settings.tree import Settings, settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import (
    NAMED,
    SECONDS_MAX,
    Asker,
    batch_of,
    fetch_request,
    produce_request,
    values_in,
)
from tests.broker.handlers.transactional import Transactional

TOPIC = "orders"


def settings(data_dir: Path | None = None, **more: object) -> Settings:
    storage: dict[str, object] = {"node.storage": "memory"}
    if data_dir is not None:
        storage = {"node.data_dir": str(data_dir)}
    values = {**storage, "listener.port": 0, "transactions.state_partitions": 3}
    return settings_of({**values, **{f"transactions.{key}": value for key, value in more.items()}})


def produce(transactional: Transactional, value: bytes, sequence: int = 0) -> ErrorCode:
    """Send one record as a client of transaction version 2, which adds the partition by itself."""
    batch = batch_of(
        value,
        producer_id=transactional.producer_id,
        producer_epoch=transactional.epoch,
        sequence=sequence,
        transactional=True,
    )
    request = produce_request(TOPIC, {0: batch}, transactional_id=transactional.name)
    answer = transactional.asker.ask(request, NAMED, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def read_committed(asker: Asker) -> PartitionData:
    request = fetch_request({TOPIC: {0: 0}}, isolation_level=1)
    answer = asker.ask(request, NAMED, FetchResponse)
    return answer.responses[0].partitions[0]


def committed_values(asker: Asker) -> list[bytes | None]:
    """What a consumer would show: without records of transactions that were aborted."""
    found = read_committed(asker)
    assert found.aborted_transactions is not None
    return [value for value in values_in(found) if value is not None and len(value) < 6]


def state_of(asker: Asker, name: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=(name,))
    return (
        asker.ask(request, 0, DescribeTransactionsResponse).transaction_states[0].transaction_state
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline


def test_a_transaction_outlives_a_restart(tmp_path: Path) -> None:
    with Broker(settings(tmp_path)) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        transactional = Transactional(asker, "bank").init()
        assert produce(transactional, b"a") == ErrorCode.NONE
        assert read_committed(asker).last_stable_offset == 0
    with Broker(settings(tmp_path)) as broker, Asker(broker.port) as asker:
        transactional.asker = asker
        assert produce(transactional, b"b", sequence=1) == ErrorCode.NONE
        transactional.end(commits=True)
        until(lambda: committed_values(asker) == [b"a", b"b"])
        assert read_committed(asker).last_stable_offset == 3


def test_a_producer_that_restarts_with_its_broker_aborts_what_it_left(tmp_path: Path) -> None:
    with Broker(settings(tmp_path)) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        transactional = Transactional(asker, "bank").init()
        produce(transactional, b"a")
        zombie = transactional.producer
    with Broker(settings(tmp_path)) as broker, Asker(broker.port) as asker:
        heir = Transactional(asker, "bank").init()
        assert heir.producer == (zombie[0], zombie[1] + 2)
        (aborted,) = read_committed(asker).aborted_transactions or ()
        assert (aborted.producer_id, aborted.first_offset) == (zombie[0], 0)
        transactional.asker = asker
        assert produce(transactional, b"b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_late_transaction_is_aborted() -> None:
    with (
        Broker(settings(timeout_check_interval_ms=20)) as broker,
        Asker(broker.port) as asker,
    ):
        asker.create(TOPIC)
        transactional = Transactional(asker, "bank")
        answer = transactional.ask_init(timeout_ms=50)
        transactional.producer_id, transactional.epoch = answer.producer_id, answer.producer_epoch
        assert produce(transactional, b"a") == ErrorCode.NONE
        until(lambda: state_of(asker, "bank") == "CompleteAbort")
        found = read_committed(asker)
        assert found.last_stable_offset == 2
        assert found.aborted_transactions
        assert produce(transactional, b"b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert transactional.ask_end(commits=True).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_id_that_rests_is_forgotten() -> None:
    quick = settings(id_expiration_ms=1, expiration_check_interval_ms=20)
    with Broker(quick) as broker, Asker(broker.port) as asker:
        Transactional(asker, "bank").init()
        until(lambda: state_of(asker, "bank") == "")


def test_a_topic_may_be_deleted_while_a_transaction_writes_to_it() -> None:
    with Broker(settings()) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        transactional = Transactional(asker, "bank").init()
        assert produce(transactional, b"a") == ErrorCode.NONE
        asker.delete(TOPIC)
        transactional.end(commits=True)
        until(lambda: state_of(asker, "bank") == "CompleteCommit")


def test_transactions_follow_each_other_without_being_told_to_wait() -> None:
    with Broker(settings()) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        transactional = Transactional(asker, "bank").init()
        for number in range(20):
            assert produce(transactional, b"%d" % number) == ErrorCode.NONE
            transactional.end(commits=True)
        until(lambda: len(committed_values(asker)) == 20)
