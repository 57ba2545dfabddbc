"""Offsets of a table as those of a group: on Penstock and on Apache Kafka, read by librdkafka."""

from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from penstock.client.groups.groups import Groups
from penstock.client.transport.options import ClientOptions, parse_client_options
from penstock.spark.tables.operation import group_offsets
from penstock.spark.tables.operation.group_offsets import GroupOffsets
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap
from tests.oracle.running_broker import free_port
from tests.spark.operation.run_events import AT, batch, held
from tests.spark.tables.inspection_world import cluster_of, fill_topic

GROUP = "table-orders"
SECONDS_MAX = 30.0


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        fill_topic(address, [b"v"] * 12)
        yield address


def client_of(bootstrap: str) -> ClientOptions:
    return parse_client_options({"bootstrap.servers": bootstrap})


def test_a_tool_for_groups_sees_the_position_after_each_commit(bootstrap: str) -> None:
    with cluster_of(bootstrap) as cluster:
        cluster_id = cluster.cluster_id()
        group = GroupOffsets(GROUP, client_of(bootstrap), publish_seconds=0.0)
        group.started(held({}, cluster_id))
        group.batch_done(batch(0, 5, position=held({AT: 5}, cluster_id)))
        group.batch_done(batch(5, 9, position=held({AT: 9}, cluster_id)))
        group.close()
        committed = Groups(cluster).committed(GROUP)
        assert {at: one.offset for at, one in committed.items()} == {AT: 9}
        described = Groups(cluster).describe(GROUP)
        assert described.members == ()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
    found = asked[GROUP].result(SECONDS_MAX).topic_partitions
    assert [(one.topic, one.partition, one.offset) for one in found] == [(*AT, 9)]
    states = admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS_MAX)
    assert (states.group_id, list(states.members)) == (GROUP, [])


def test_offsets_of_another_cluster_are_not_published(bootstrap: str) -> None:
    group = GroupOffsets("strangers", client_of(bootstrap), publish_seconds=0.0)
    group.batch_done(batch(position=held({AT: 5}, "another")))
    group.close()
    with cluster_of(bootstrap) as cluster:
        assert not Groups(cluster).committed("strangers")


def test_a_cluster_that_is_away_is_reported_and_delays_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "TIMEOUT_MS", 200)
    group = GroupOffsets(GROUP, client_of(f"127.0.0.1:{free_port()}"), publish_seconds=0.0)
    for number in range(100):
        group.batch_done(batch(position=held({AT: number})))
    assert not group._publisher.flush(0.5)
    group._publisher.close(0.0)
    (record,) = caplog.records
    assert "could not be published" in record.getMessage()
