"""Aborted transactions on disk: both brokers leave the same index, and Kafka's tool reads it.

The same conversation is held with both: transactions that overlap, commit and abort. The broker is
killed in the middle of one and continues it after the start. Penstock then serves the folder that
Apache Kafka wrote, and leaves the same records out.
"""

import shutil
from pathlib import Path

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, produce_request
from tests.broker.handlers.transactional import Transactional, retried, until_written
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.log_dump import dump_log, dump_transactions
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

TOPIC = "ledger"
ABORTED = [(0, 2, 1), (4, 5, 6), (7, 8, 9)]
"""First offset, marker and last stable offset of what the conversation aborts."""


def write(bank: Transactional, value: bytes, sequence: int = 0) -> None:
    batch = batch_of(
        value,
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=sequence,
        transactional=True,
    )
    request = produce_request(TOPIC, {0: batch}, transactional_id=bank.name)

    def attempt() -> ErrorCode:
        answer = bank.asker.ask(request, NAMED, ProduceResponse)
        code = answer.responses[0].partition_responses[0].error_code
        is_busy = code == ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_busy else code

    assert retried(attempt, lambda code: code) == ErrorCode.NONE


def converse(broker: RunningBroker) -> None:
    """Offsets: 0 a, 1 b, 2 abort a, 3 commit b, 4 c, kill, 5 abort c, 6 plain, 7 d, 8 abort d."""
    is_kafka = broker.name == "kafka"
    with broker:
        with Asker(broker.port, is_kafka=is_kafka) as asker:
            asker.create(TOPIC)
            first, second = (Transactional(asker, name).init() for name in ("first", "second"))
            write(first, b"a")
            write(second, b"b")
            first.end(commits=False)
            until_written(asker, TOPIC, 3)
            second.end(commits=True)
            until_written(asker, TOPIC, 4)
            write(first, b"c")
        broker.kill()
        broker.start()
        with Asker(broker.port, is_kafka=is_kafka) as asker:
            first.asker = asker
            first.end(commits=False)
            until_written(asker, TOPIC, 6)
            asker.produce(TOPIC, batch_of(b"plain"))
            write(first, b"d")
            first.end(commits=False)
            until_written(asker, TOPIC, 9)


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that a broker left."""
    folder = tmp_path_factory.mktemp(request.param)
    broker = (kafka_broker if request.param == "kafka" else penstock_broker)(folder)
    converse(broker)
    return broker.data_dir


def test_kafkas_tool_reads_the_index(written: Path) -> None:
    partition = written / f"{TOPIC}-0"
    assert [entry[1:] for entry in dump_transactions(partition)] == ABORTED
    dump = dump_log(partition)
    assert dump.complaints == []
    assert [batch.base_offset for batch in dump.batches] == list(range(9))


def test_penstock_leaves_the_same_records_out(written: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(written, data_dir)
    broker = penstock_broker(tmp_path / "broker", data_dir=data_dir)
    with broker, Asker(broker.port) as asker:
        request = fetch_request({TOPIC: {0: 0}}, isolation_level=1)
        (data,) = asker.ask(request, NAMED, FetchResponse).responses[0].partitions
    assert data.last_stable_offset == 9
    assert data.aborted_transactions is not None
    assert [entry.first_offset for entry in data.aborted_transactions] == [0, 4, 7]
