"""Transactions of the parent on a mirror: copied as they are, and ended by a promotion."""

from collections.abc import Iterator

import pytest

from penstock.client import calls
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, produce_request
from tests.broker.handlers.transactional import Transactional, until_written
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    down_pipe,
    equal,
    until,
)


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC)
        yield running


def send(transactional: Transactional, value: bytes, sequence: int = 0) -> ErrorCode:
    """Send one record in a transaction; the broker adds the partition by itself."""
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


def stable_offset(broker: Broker) -> int:
    at = TopicPartition(TOPIC, 0)
    with client_of(broker.bootstrap_server) as cluster:
        found = cluster.look_up_offsets({at: calls.LATEST_TIMESTAMP}, is_read_committed=True)
        return found[at].offset


def test_decided_and_open_transactions_are_copied_and_open_ones_end_with_a_promotion(
    parent: Broker,
) -> None:
    with Asker(parent.port) as asker:
        done, undone, hanging = (Transactional(asker, name) for name in ("a", "b", "c"))
        for one in (done, undone, hanging):
            one.init()
        assert send(done, b"kept") is ErrorCode.NONE
        done.ask_end(commits=True)
        until_written(asker, TOPIC, 2)
        assert send(undone, b"aborted") is ErrorCode.NONE
        undone.ask_end(commits=False)
        until_written(asker, TOPIC, 4)
        assert send(hanging, b"undecided") is ErrorCode.NONE
        with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
            operator = Operator(child)
            operator.wait_in_step()
            assert equal(child, parent)
            assert [one.value for one in child.records(TOPIC)] == ["kept"]
            assert stable_offset(child) == 4
            operator.ask("POST", "/hq/promote", {"topics": []})
            until(lambda: stable_offset(child) == 6)
            child.produce(TOPIC, "written here")
            assert [one.value for one in child.records(TOPIC)] == ["kept", "written here"]


def test_a_transaction_of_this_broker_neither_writes_nor_ends_in_a_mirror(parent: Broker) -> None:
    parent.produce(TOPIC, "one")
    with (
        Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child,
        Asker(child.port) as asker,
    ):
        Operator(child).wait_in_step()
        local = Transactional(asker, "local")
        local.init()
        assert send(local, b"not allowed") is ErrorCode.POLICY_VIOLATION
        assert local.ask_add(TOPIC, 0) == [ErrorCode.POLICY_VIOLATION]
        described = asker.ask(
            DescribeTransactionsRequest(transactional_ids=("local",)),
            0,
            DescribeTransactionsResponse,
        )
        assert described.transaction_states[0].topics == ()  # no marker would be written there
        assert equal(child, parent)


def test_producer_ids_of_a_broker_with_mirrors_are_not_those_of_the_parent(parent: Broker) -> None:
    parent.produce(TOPIC, "one")
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        with client_of(child.bootstrap_server) as down, client_of(parent.bootstrap_server) as up:
            assert up.start_producer().producer_id < 1 << 40 <= down.start_producer().producer_id
