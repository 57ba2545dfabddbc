"""The log on disk is Kafka's: its own tool reads the logs of Penstock, and Penstock those of Kafka.

All checks run on both brokers' logs, so that the checks themselves are tested: one that fails on
Apache Kafka's own log is wrong. The moments are those of `log_history`.
"""

import base64
import functools
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.client_drivers import DriverProcess
from tests.interop.driver_protocol import Fetch, Produce, Record
from tests.interop.log_history import (
    CODECS,
    PARTITIONS,
    SEGMENT_BYTES,
    TOPIC,
    History,
    Moment,
    write_history,
)
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.log_dump import Dump, check_indexes, dump_log, dump_snapshot, segment_files
from tests.oracle.penstock_broker import penstock_broker

pytestmark = pytest.mark.interop

MOMENTS = ("stopped", "killed", "recovered")
Histories = Callable[[str], History]
Dumps = Callable[[Path], Dump]


@pytest.fixture(scope="module")
def history_of(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    """The history that this broker wrote."""

    @functools.cache
    def history(broker: str) -> History:
        folder = tmp_path_factory.mktemp(f"history-{broker}")
        make = kafka_broker if broker == "kafka" else penstock_broker
        return write_history(make(folder / "broker"), folder)

    return history


@pytest.fixture(scope="module")
def dumped() -> Dumps:
    """Dump a partition's log once."""
    return functools.cache(dump_log)


every_broker = pytest.mark.parametrize("broker", ["kafka", "penstock"])
every_partition = pytest.mark.parametrize("partition", range(PARTITIONS))


def moment_of(history: History, name: str) -> Moment:
    moment = getattr(history, name)
    assert isinstance(moment, Moment)
    return moment


@every_broker
@every_partition
@pytest.mark.parametrize("moment_name", MOMENTS)
def test_every_batch_is_valid_and_nothing_acknowledged_is_missing(
    broker: str, moment_name: str, partition: int, history_of: Histories, dumped: Dumps
) -> None:
    moment = moment_of(history_of(broker), moment_name)
    dump = dumped(moment.partition(partition))
    assert dump.complaints == []
    acknowledged = moment.acknowledged_in(partition)
    assert {offset: dump.records.get(offset) for offset in acknowledged} == acknowledged
    assert sorted(dump.records) == list(range(len(dump.records)))
    assert {batch.codec for batch in dump.batches} == set(CODECS)
    if moment_name != "killed":
        assert len(dump.records) == len(acknowledged), "a duplicate, or a record nobody sent"


@every_broker
@every_partition
def test_segments_rolled(broker: str, partition: int, history_of: Histories) -> None:
    folder = history_of(broker).recovered.partition(partition)
    logs = segment_files(folder, "log")
    assert len(logs) >= 4
    assert all(log.stat().st_size <= SEGMENT_BYTES for log in logs)


@every_broker
@every_partition
def test_sequences_of_each_producer_have_no_gap(
    broker: str, partition: int, history_of: Histories, dumped: Dumps
) -> None:
    dump = dumped(history_of(broker).recovered.partition(partition))
    next_sequence: dict[int, int] = {}
    for batch in dump.batches:
        assert batch.producer_id >= 0
        assert batch.base_sequence == next_sequence.get(batch.producer_id, 0)
        assert batch.last_sequence == batch.base_sequence + batch.count - 1
        next_sequence[batch.producer_id] = batch.last_sequence + 1
    assert len(next_sequence) == len(CODECS) + 1


@every_broker
@every_partition
@pytest.mark.parametrize("moment_name", ["stopped", "recovered"])
def test_indexes_are_sane_and_fit_the_log(
    broker: str, moment_name: str, partition: int, history_of: Histories
) -> None:
    folder = moment_of(history_of(broker), moment_name).partition(partition)
    report = check_indexes(folder)
    assert report.complaints == []
    names = {log.stem for log in segment_files(folder, "log")}
    assert report.passed == {f"{n}.{kind}" for n in names for kind in ("index", "timeindex")}
    # About one entry for each index.interval.bytes, in each of the two indexes.
    assert report.entries > 50


@every_broker
@every_partition
@pytest.mark.parametrize("moment_name", ["stopped", "recovered"])
def test_last_producer_snapshot_is_the_end_of_the_log(
    broker: str, moment_name: str, partition: int, history_of: Histories, dumped: Dumps
) -> None:
    folder = moment_of(history_of(broker), moment_name).partition(partition)
    dump = dumped(folder)
    last = segment_files(folder, "snapshot")[-1]
    assert int(last.stem) == len(dump.records)
    ends = {batch.producer_id: batch for batch in dump.batches}
    found = dump_snapshot(last)
    assert {
        producer_id: (one.epoch, one.last_sequence, one.last_offset)
        for producer_id, one in found.items()
    } == {
        producer_id: (batch.producer_epoch, batch.last_sequence, batch.last_offset)
        for producer_id, batch in ends.items()
    }


@every_broker
@every_partition
@pytest.mark.parametrize("moment_name", ["stopped", "recovered"])
def test_leader_epochs_are_those_of_the_batches(
    broker: str, moment_name: str, partition: int, history_of: Histories, dumped: Dumps
) -> None:
    folder = moment_of(history_of(broker), moment_name).partition(partition)
    version, count, *lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()
    assert (version, count) == ("0", str(len(lines)))
    entries = [(int(start), int(epoch)) for epoch, start in (line.split() for line in lines)]
    assert entries == sorted(entries)
    for batch in dumped(folder).batches:
        assert batch.leader_epoch == max(e for s, e in entries if s <= batch.base_offset)


def kafka_topic_id(partition: Path) -> uuid.UUID:
    """The topic's id as Kafka keeps it in each partition's folder."""
    text = (partition / "partition.metadata").read_text()
    found = re.search(r"^topic_id: (\S+)$", text, re.MULTILINE)
    assert found is not None
    return uuid.UUID(bytes=base64.urlsafe_b64decode(found[1] + "=="))


@every_broker
@every_partition
def test_partition_metadata_names_the_topic(
    broker: str, partition: int, history_of: Histories
) -> None:
    history = history_of(broker)
    first = kafka_topic_id(history.recovered.partition(0))
    assert kafka_topic_id(history.recovered.partition(partition)) == first
    text = (history.recovered.partition(partition) / "partition.metadata").read_text()
    assert text.splitlines()[0] == "version: 0"


@pytest.mark.parametrize("moment_name", MOMENTS)
def test_penstock_serves_what_kafka_wrote(
    moment_name: str, history_of: Histories, dumped: Dumps, tmp_path: Path
) -> None:
    """A copy of Kafka's folder is read, described, written on, and still Kafka's afterwards."""
    moment = moment_of(history_of("kafka"), moment_name)
    logs = [dumped(moment.partition(index)) for index in range(PARTITIONS)]
    data_dir = tmp_path / "data"
    shutil.copytree(moment.data_dir, data_dir)
    broker = penstock_broker(tmp_path / "broker", data_dir=data_dir)
    more = Record(0, b"written by the other broker", key=b"more")
    with broker:
        driver = DriverProcess("kafka-python", broker.bootstrap)
        try:
            topic = driver.describe_topic(TOPIC)
            assert topic["topic_id"] == str(kafka_topic_id(moment.partition(0)))
            assert len(topic["partitions"]) == PARTITIONS
            for partition, dump in enumerate(logs):
                assert _served(driver, partition, len(dump.records)) == dump.records
            end = len(logs[0].records)
            assert driver.produce(Produce(TOPIC, (more,))) == [(0, end)]
        finally:
            driver.close()
    after = dump_log(data_dir / f"{TOPIC}-0")
    assert after.complaints == []
    assert after.records == {**logs[0].records, end: ("more", "written by the other broker")}
    assert check_indexes(data_dir / f"{TOPIC}-0").complaints == []


def _served(
    driver: DriverProcess, partition: int, count: int
) -> dict[int, tuple[str | None, str | None]]:
    assert driver.list_offset(TOPIC, partition, "latest") == count
    records = driver.fetch(Fetch(TOPIC, partition, "earliest", count))
    return {
        record.offset: ((record.key or b"").decode(), (record.value or b"").decode())
        for record in records
        if record.offset is not None
    }


def test_the_questions_find_damage(history_of: Histories, tmp_path: Path) -> None:
    """One wrong byte of a record, and one wrong position of an index, are both complained about."""
    partition = tmp_path / f"{TOPIC}-0"
    shutil.copytree(history_of("kafka").stopped.partition(0), partition)
    log = segment_files(partition, "log")[0]
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    assert dump_log(partition).complaints != []

    data[1000] ^= 1
    log.write_bytes(data)
    assert check_indexes(partition).complaints == []
    index = segment_files(partition, "index")[0]
    entries = bytearray(index.read_bytes())
    relative_offset_of_the_last_entry = len(entries) - 8
    entries[relative_offset_of_the_last_entry + 3] -= 1
    index.write_bytes(entries)
    assert check_indexes(partition).complaints != []
