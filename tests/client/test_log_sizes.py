"""Sizes of logs: one call for each leader, and no size from leaders that report none."""

import pytest

from penstock.client.log_sizes import find_log_sizes
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from tests.client.number_cluster import NumberCluster

PARTITIONS = [TopicPartition("orders", index) for index in range(6)]


@pytest.fixture
def cluster() -> NumberCluster:
    made = NumberCluster((1, 2))
    made.set_topic("orders", *[100] * 6)
    made.sizes = {at: 10 * at.partition for at in PARTITIONS}
    return made


def test_each_leader_is_asked_once(cluster: NumberCluster) -> None:
    assert find_log_sizes(cluster.client(), PARTITIONS) == cluster.sizes
    assert cluster.counted() == {"Metadata": 1, "DescribeLogDirs": 2}


def test_a_broker_that_may_not_tell_is_left_out(cluster: NumberCluster) -> None:
    cluster.sizes_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert find_log_sizes(cluster.client(), PARTITIONS) == {}


def test_other_errors_are_raised(cluster: NumberCluster) -> None:
    cluster.sizes_code = ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(BrokerAnswerError, match="sizes of logs"):
        find_log_sizes(cluster.client(), PARTITIONS)
