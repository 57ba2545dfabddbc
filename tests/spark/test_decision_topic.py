"""The topic of decisions on clusters of several brokers: its replicas, and warnings about them.

On one broker, real and in memory, it is created in `test_sink_transactions`.
"""

import pytest

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import create_topics, describe_configs, incremental_alter_configs
from penstock.spark.sink.decision_topic import ensure_topic
from penstock.spark.sink.errors import DecisionTopicError
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster

NAME = "decisions"


class Brokers(FakeCluster):
    """A cluster in memory whose topics have the settings of the test."""

    def __init__(self, count: int, replication_factor: int, insync: str = "1") -> None:
        super().__init__(tuple(range(1, count + 1)))
        self.replication_factor = replication_factor
        self.configs = {"cleanup.policy": "compact", "min.insync.replicas": insync}
        self.handlers[describe_configs.DescribeConfigsRequest] = self._describe

    def _describe(
        self, broker_id: int, request: object, code: ErrorCode
    ) -> describe_configs.DescribeConfigsResponse:
        assert isinstance(request, describe_configs.DescribeConfigsRequest)
        (resource,) = request.resources
        configs = tuple(
            describe_configs.DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=5,
                is_sensitive=False,
                synonyms=(),
            )
            for name, value in self.configs.items()
        )
        return describe_configs.DescribeConfigsResponse(
            results=(
                describe_configs.DescribeConfigsResult(
                    error_code=code,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=configs,
                ),
            )
        )

    def cluster(self) -> Cluster:
        clock = StepClock()
        return Cluster([Address("bootstrap", 9000)], self.connect, clock=clock, sleep=clock.sleep)

    def settings_made(self) -> list[tuple[str, str | None]]:
        """What was set after the topic was made."""
        kind = incremental_alter_configs.IncrementalAlterConfigsRequest
        asked = [one for one in self.requests if isinstance(one, kind)]
        return [
            (config.name, config.value)
            for request in asked
            for resource in request.resources
            for config in resource.configs
        ]


def ensure(brokers: Brokers) -> None:
    ensure_topic(brokers.cluster(), NAME, sleep=lambda _: None)


def test_brokers_choose_the_replicas_and_two_must_have_a_decision() -> None:
    brokers = Brokers(3, replication_factor=3)
    ensure(brokers)
    (made,) = [
        one for one in brokers.requests if isinstance(one, create_topics.CreateTopicsRequest)
    ]
    assert made.topics[0].replication_factor == -1
    assert brokers.settings_made() == [("min.insync.replicas", "2")]


@pytest.mark.parametrize(
    ("count", "replication_factor", "insync"), [(1, 1, "1"), (3, 2, "1"), (3, 3, "2"), (5, 5, "3")]
)
def test_what_is_sensible_already_stays(count: int, replication_factor: int, insync: str) -> None:
    brokers = Brokers(count, replication_factor, insync)
    ensure(brokers)
    assert brokers.settings_made() == []


def test_a_topic_of_others_is_not_changed() -> None:
    brokers = Brokers(3, replication_factor=3)
    brokers.add_topic(NAME, 8)
    ensure(brokers)
    assert brokers.settings_made() == []


@pytest.mark.parametrize(
    ("count", "replication_factor", "is_told"),
    [(1, 1, False), (2, 1, False), (3, 1, True), (3, 2, False), (5, 1, True)],
)
def test_one_replica_on_many_brokers_is_told(
    count: int, replication_factor: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(count, replication_factor)
    ensure(brokers)
    assert (f"one replica on a cluster of {count} brokers" in caplog.text) == is_told
    caplog.clear()
    ensure(brokers)  # the next driver finds the topic, and warns too
    assert ("kafka-reassign-partitions" in caplog.text) == is_told


def test_a_setting_that_is_refused_is_told(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(3, replication_factor=3)
    kind = incremental_alter_configs.IncrementalAlterConfigsRequest
    brokers.fail_next(kind, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ensure(brokers)
    assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text
    assert "Set it to 2" in caplog.text


def test_a_topic_that_cannot_be_made_is_told() -> None:
    brokers = Brokers(3, replication_factor=3)
    brokers.fail_next(create_topics.CreateTopicsRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(DecisionTopicError, match="cannot be created: TOPIC_AUTHORIZATION_FAILED"):
        ensure(brokers)
