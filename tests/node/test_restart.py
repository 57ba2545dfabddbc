"""Starting again on the same directory: everything is kept, after a stop and after a crash."""

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError, DataDirectoryLockedError
from penstock.core.settings.config import BrokerConfig
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.node.data import TOPIC, broker_on, crash, fill, records


def retention_of(asker: Asker, topic: str) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=("retention.ms",)
    )
    request = DescribeConfigsRequest(resources=(resource,))
    (result,) = asker.ask(request, 4, DescribeConfigsResponse).results
    return result.configs[0].value


@pytest.mark.parametrize("is_crash", [False, True], ids=["stop", "crash"])
def test_everything_is_there_again(tmp_path: Path, is_crash: bool) -> None:
    path = tmp_path / "data"
    with broker_on(path) as asker:
        before = asker.ask(MetadataRequest(topics=None), 13, MetadataResponse)
        topic_id = asker.create(TOPIC, 3, {"retention.ms": "123456789"})
        producer = asker.producer_id()
        batches = [
            batch_of(b"%d" % number, producer_id=producer, sequence=number) for number in range(5)
        ]
        for batch in batches:
            assert asker.produce(TOPIC, batch).error_code == ErrorCode.NONE
        if is_crash:
            path = crash(path)
    with broker_on(path) as asker:
        after = asker.ask(MetadataRequest(topics=None), 13, MetadataResponse)
        assert after.cluster_id == before.cluster_id
        (topic,) = after.topics
        assert (topic.name, topic.topic_id, len(topic.partitions)) == (TOPIC, topic_id, 3)
        assert {partition.leader_epoch for partition in topic.partitions} == {0}
        assert retention_of(asker, TOPIC) == "123456789"
        assert records(asker) == [b"%d" % number for number in range(5)]
        # The producer's batches are known: all five are answered with where they are.
        again = [asker.produce(TOPIC, batch).base_offset for batch in batches]
        assert again == [0, 1, 2, 3, 4]
        following = batch_of(b"5", producer_id=producer, sequence=5)
        assert asker.produce(TOPIC, following).base_offset == 5
        gap = batch_of(b"7", producer_id=producer, sequence=7)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert asker.produce(TOPIC, gap).error_code == code
        assert asker.producer_id() > producer


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"old")
        asker.delete(TOPIC)
        assert not list(tmp_path.glob(f"{TOPIC}-0*"))
    with broker_on(tmp_path) as asker:
        assert asker.describe(TOPIC).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new_id = fill(asker, b"new")
    with broker_on(tmp_path) as asker:
        assert asker.describe(TOPIC).topic_id == new_id
        assert records(asker) == [b"new"]


def test_a_clean_stop_says_so_and_a_start_takes_it_back(tmp_path: Path) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    with broker_on(tmp_path):
        assert not marker.exists()
    assert marker.exists()
    with broker_on(tmp_path):
        assert not marker.exists()


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        with pytest.raises(DataDirectoryLockedError), broker_on(tmp_path):
            pass
        fill(asker, b"still served")
        assert records(asker) == [b"still served"]
    with broker_on(tmp_path) as asker:
        assert records(asker) == [b"still served"]


def test_a_start_that_fails_leaves_the_directory_to_the_next(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with broker_on(second) as asker:
        fill(asker, b"kept")
    with broker_on(first) as asker:
        taken = BrokerConfig(port=asker.port, data_dir=second)
        with pytest.raises(ConfigError, match="cannot listen"):
            Broker(taken).start()
    with broker_on(second) as asker:
        assert records(asker) == [b"kept"]
